package index

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"bailey"
	"bailey/internal/ledger/owned"
)

// fileStamp distinguishes files, and a written file from an unwritten one, as finely as the file system's clock allows.
type fileStamp struct {
	dev, ino                uint64
	size, modified, changed int64 // bytes; nanoseconds since 1970. No process can set the change time (inode(7))
}

// indexStamps holds the stamps of the file and of the log that SQLite keeps beside it until its content is in the file.
type indexStamps struct{ main, wal fileStamp }

// readStamps reads the traces. A file that cannot be inspected has the zero stamp.
func (x *Index) readStamps() (t indexStamps) {
	t.main, _ = stampOf(x.path)
	t.wal, _ = stampOf(x.path + "-wal")
	return t
}

// recordStamps records the state of the files. It must be called after each of our writes and at no other time.
func (x *Index) recordStamps() { x.left = x.readStamps() }

const errForeign staleError = "another program has written it"

// ensureOpen opens the file, unless it is open and unchanged.
func (x *Index) ensureOpen(ctx context.Context) error {
	now := x.readStamps()
	if x.db != nil && now.main != (fileStamp{}) {
		if now == x.left {
			return nil
		}
		return errForeign
	}
	x.closeDB() // the file was deleted
	fresh, err := x.prepareFile()
	if err != nil {
		return err
	}
	for _, suffix := range []string{"-wal", "-shm", "-journal"} { // SQLite blocks on a pipe and follows a link
		if st, err := os.Lstat(x.path + suffix); err == nil && (!st.Mode().IsRegular() || suffix == "-journal") {
			return staleError("beside it is " + suffix + ", which is not part of it")
		}
	}
	found := x.readStamps().main
	sealed, err := x.consumeSeal(ctx)
	if err != nil {
		return err
	}
	if err := x.openSQLite(ctx, fresh, sealed); err != nil {
		return err
	}
	x.recordStamps()
	if !fresh && x.left.main != found { // changed between the check and the lock of SQLite
		return errForeign
	}
	return nil
}

// openSQLite opens the file with SQLite.
func (x *Index) openSQLite(ctx context.Context, fresh, sealed bool) (err error) {
	if x.db, err = sql.Open("sqlite", sqliteDSN(x.path)); err != nil {
		return err
	}
	x.db.SetMaxOpenConns(1) // one at a time, so that the files stay as note recorded them
	if x.pages > 0 {
		if _, err := x.db.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count=%d", x.pages)); err != nil {
			return err
		}
	}
	if fresh {
		return x.createSchema(ctx)
	}
	return x.examineFile(ctx, sealed)
}

func (x *Index) openDir() (*owned.Dir, error) {
	return owned.OpenDir(filepath.Dir(x.path), "the directory of the index",
		"run chmod 700 and chown on it, after finding out who changed it")
}

// prepareFile checks that only this user could have written the file. It opens and closes the file before SQLite does,
// because a process that closes a file loses its locks on it (fcntl(2)).
func (x *Index) prepareFile() (fresh bool, err error) {
	dir, err := x.openDir()
	if err != nil {
		return false, err
	}
	defer dir.Close()
	f, err := dir.OpenFit(filepath.Base(x.path), os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		if err := x.removeFiles(); err != nil { // files that an earlier index left beside it
			return false, err
		}
		fresh = true
		f, err = dir.OpenFit(filepath.Base(x.path), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	} else if err != nil {
		return false, staleError(err.Error())
	}
	if err != nil {
		return false, err
	}
	err = x.checkSize(f)
	return fresh, errors.Join(err, f.Close())
}

// removeFiles deletes the file and the files that SQLite keeps beside it.
func (x *Index) removeFiles() error {
	x.closeDB()
	for _, suffix := range []string{sealSuffix, "-wal", "-shm", "-journal", ""} {
		if err := os.Remove(x.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return bailey.Unavailable.Wrap(err, "cannot rebuild the index of receipts",
				"move "+x.path+suffix+" away")
		}
	}
	return nil
}

func (x *Index) createSchema(ctx context.Context) error {
	x.mark, x.whole, x.opened = indexProgress{}, false, nil
	_, err := x.db.ExecContext(ctx, schema)
	return err
}

// completeSchema completes an index that was fed for the first time.
func (x *Index) completeSchema(ctx context.Context) error {
	if x.whole {
		return nil
	}
	defer x.recordStamps()
	if _, err := x.db.ExecContext(ctx,
		"BEGIN;"+indexes+fmt.Sprintf("PRAGMA user_version=%d; COMMIT", schemaVersion)); err != nil {
		return err
	}
	x.whole = true
	return nil
}

// examineFile refuses a file of another schema. If the file is not sealed, it also refuses a damaged one.
func (x *Index) examineFile(ctx context.Context, sealed bool) error {
	var version int
	var verdict string
	if err := x.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version != schemaVersion {
		return staleError(fmt.Sprintf("its schema is %d, and not %d", version, schemaVersion))
	}
	if !sealed {
		if err := x.db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&verdict); err != nil {
			return err
		}
		if verdict != "ok" {
			return staleError("it is damaged: " + verdict)
		}
	}
	if err := x.checkStatements(ctx); err != nil {
		return err
	}
	x.mark, x.whole, x.opened = indexProgress{}, true, nil
	err := x.mark.scanRow(x.db.QueryRowContext(ctx, getMark))
	if errors.Is(err, sql.ErrNoRows) {
		return staleError("it does not state its last entry")
	}
	return err
}

// checkStatements refuses a file with other statements than ours: for example, a trigger, a view or a constraint could hide later
// rows.
func (x *Index) checkStatements(ctx context.Context) error {
	rows, err := x.db.QueryContext(ctx, getStatements)
	if err != nil {
		return err
	}
	defer rows.Close()
	want := schemaStatements()
	for i := 0; rows.Next(); i++ {
		var sql string
		if err := rows.Scan(&sql); err != nil {
			return err
		}
		if i >= len(want) || sql != want[i] {
			return staleError(fmt.Sprintf("it contains the unknown %.80q", sql))
		}
		want[i] = ""
	}
	if strings.Join(want, "") != "" {
		return staleError("it lacks a part of its schema")
	}
	return rows.Err()
}

// classifyError makes an error stale if only a new file can fix it. These are all errors of SQLite except those of the
// disk, of memory, and of another process that holds the file.
func classifyError(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT,
		sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN:
		return bailey.Unavailable.Wrapf(err,
			"check the disk and who has the file open; the index may be deleted",
			"the index of receipts cannot be used")
	case sqlite3.SQLITE_FULL:
		return bailey.Unavailable.Wrapf(err, "free some space for the index",
			"there is no space for the index of receipts")
	}
	return staleError(err.Error())
}

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
	dir, err := x.openDir()
	if err != nil {
		return err
	}
	defer dir.Close()
	// not ours: open removed ours
	if err := os.Remove(x.path + sealSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// replaces no file and follows no link
	return dir.Create(sealTemp, filepath.Base(x.path)+sealSuffix, bytes.NewReader(sum))
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
	dir, err := x.openDir()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := dir.OpenFit(filepath.Base(x.path)+sealSuffix, os.O_RDONLY)
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
		return staleError(fmt.Sprintf("it has %d bytes for a ledger of %d", st.Size(), ledger))
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
