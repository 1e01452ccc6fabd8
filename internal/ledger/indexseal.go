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
	sealTemp   = "index.seal.new" // until it is complete and on the disk
	sealBytes  = 2 * sha256.Size
	indexSpare = 64 << 20 // bytes allowed beyond twice the ledger's size; a normal index has less than half
)

// sealFile closes the file and stores its digest beside it, which is the seal. The digest is taken while SQLite holds the
// file, and the file must not change until it is closed. A later change does not match the seal. While the file is
// open, it has no seal. After a crash the seal is therefore missing and the file is examined, which takes a hundred
// times as long and does not detect changes that were made with SQLite. The seal is not a key: a process that can write
// the file can write the seal.
func (x *Index) sealFile() error {
	if _, err := x.db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		x.closeDB()
		return err
	}
	x.recordStamps()
	f, err := os.Open(x.path)
	if err != nil {
		x.closeDB()
		return err
	}
	sum, err := digestReader(context.Background(), f)
	err = errors.Join(err, x.closeDB(), f.Close()) // in this order: a process that closes a file loses its locks on it (fcntl(2))
	if err != nil {
		return err
	}
	if now := x.readStamps(); now.main != x.left.main || now.wal != (fileStamp{}) {
		return errForeign
	}
	dir, err := openDir(filepath.Dir(x.path))
	if err != nil {
		return err
	}
	defer dir.Close()
	// not ours: open removed ours
	if err := os.Remove(x.path + sealSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// replaces no file and follows no link
	return dir.createFile(sealTemp, filepath.Base(x.path)+sealSuffix, bytes.NewReader(sum))
}

// consumeSeal removes the seal and reports whether it existed. If the file does not match the seal, or the seal cannot be
// ours, the error is stale.
func (x *Index) consumeSeal(ctx context.Context) (bool, error) {
	noted, err := x.readSeal()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if rerr := os.Remove(x.path + sealSuffix); rerr != nil {
		return false, rerr
	}
	if err != nil {
		return false, staleError(err.Error())
	}
	f, err := os.Open(x.path) // SQLite does not have it yet, and place has checked it
	if err != nil {
		return false, err
	}
	defer f.Close()
	sum, err := digestReader(ctx, f)
	if err != nil {
		return false, err
	}
	if _, err := os.Lstat(x.path + "-wal"); !bytes.Equal(sum, noted) || !errors.Is(err, fs.ErrNotExist) {
		return false, errForeign
	}
	return true, nil
}

// readSeal reads the seal.
func (x *Index) readSeal() ([]byte, error) {
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

// checkSize refuses a file that is too large to be worth reading.
func (x *Index) checkSize(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	_, _, ledger, err := x.ledger.Extent()
	if err == nil && st.Size() > 2*ledger+indexSpare {
		return staleError(fmt.Sprintf("it has %d bytes, for a ledger of %d", st.Size(), ledger))
	}
	return err
}

// digestReader hashes r to its end, unless ctx ends.
func digestReader(ctx context.Context, r io.Reader) ([]byte, error) {
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
