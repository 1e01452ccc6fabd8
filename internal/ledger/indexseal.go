package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	sealSuffix = ".sha256"
	sealTemp   = "index.seal.new" // until it is whole and on the disk
	sealBytes  = 2 * sha256.Size
	indexSpare = 64 << 20 // bytes that an index may have beyond twice its ledger's: ours has less than half
)

// seal closes the file and notes its digest beside it. The digest is taken while SQLite holds the file, and nothing may
// change it until it is closed; what changes it later does not fit the note. The note is gone while the file is open: what
// a crash leaves has none, and is examined, which takes a hundred times as long and does not see what somebody changed
// with SQLite's help. It is no key: who can write the file can write the note.
func (x *Index) seal() error {
	if _, err := x.db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		x.shut()
		return err
	}
	x.note()
	f, err := os.Open(x.path)
	if err != nil {
		x.shut()
		return err
	}
	sum, err := digest(context.Background(), f)
	err = errors.Join(err, x.shut(), f.Close()) // in this order: a process that closes a file loses its locks on it (fcntl(2))
	if err != nil {
		return err
	}
	if now := x.now(); now.main != x.left.main || now.wal != (stamp{}) {
		return errForeign
	}
	dir, err := openDir(filepath.Dir(x.path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := os.Remove(x.path + sealSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) { // none of ours: they are gone
		return err
	}
	return dir.create(sealTemp, filepath.Base(x.path)+sealSuffix, bytes.NewReader(sum)) // over nothing, through no link
}

// sealed takes the note away and tells whether there was one. A file that is not what it says is stale, and so is a note
// that we cannot have written.
func (x *Index) sealed(ctx context.Context) (bool, error) {
	noted, err := x.noted()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if rerr := os.Remove(x.path + sealSuffix); rerr != nil {
		return false, rerr
	}
	if err != nil {
		return false, stale(err.Error())
	}
	f, err := os.Open(x.path) // SQLite does not have it yet, and place has looked at it
	if err != nil {
		return false, err
	}
	defer f.Close()
	sum, err := digest(ctx, f)
	if err != nil {
		return false, err
	}
	if _, err := os.Lstat(x.path + "-wal"); !bytes.Equal(sum, noted) || !errors.Is(err, fs.ErrNotExist) {
		return false, errForeign
	}
	return true, nil
}

// noted reads the note.
func (x *Index) noted() ([]byte, error) {
	dir, err := openDir(filepath.Dir(x.path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := dir.openFit(filepath.Base(x.path)+sealSuffix, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, sealBytes+1))
}

// plausible refuses a file so large that it is not worth reading.
func (x *Index) plausible(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	_, _, ledger, err := x.ledger.Extent()
	if err == nil && st.Size() > 2*ledger+indexSpare {
		return stale(fmt.Sprintf("it has %d bytes, for a ledger of %d", st.Size(), ledger))
	}
	return err
}

// digest reads to the end, unless nobody waits any more.
func digest(ctx context.Context, r io.Reader) ([]byte, error) {
	sum := sha256.New()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if _, err := io.CopyN(sum, r, 1<<20); err == io.EOF {
			return hex.AppendEncode(nil, sum.Sum(nil)), nil
		} else if err != nil {
			return nil, err
		}
	}
}
