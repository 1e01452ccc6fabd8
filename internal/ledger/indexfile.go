package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"

	"bailey"
)

// stamp tells files apart, and one that was written from one that was not, as finely as the file system's clock does.
type stamp struct {
	dev, ino                uint64
	size, modified, changed int64 // bytes; nanoseconds since 1970. Nobody can set when a file changed (inode(7))
}

// traces are the stamps of the file and of what SQLite keeps beside it until it stands in the file.
type traces struct{ main, wal stamp }

// now reads the traces. A file that cannot be looked at has none.
func (x *Index) now() (t traces) {
	t.main, _ = stampOf(x.path)
	t.wal, _ = stampOf(x.path + "-wal")
	return t
}

// note remembers how we leave the files: after each writing, and nothing else.
func (x *Index) note() { x.left = x.now() }

const errForeign stale = "somebody else has written it"

// open opens the file unless it is open and as we left it.
func (x *Index) open(ctx context.Context) error {
	now := x.now()
	if x.db != nil && now.main != (stamp{}) {
		if now == x.left {
			return nil
		}
		return errForeign
	}
	x.shut() // it was deleted
	fresh, err := x.place()
	if err != nil {
		return err
	}
	for _, suffix := range []string{"-wal", "-shm", "-journal"} { // SQLite waits for a pipe, and follows a link
		if st, err := os.Lstat(x.path + suffix); err == nil && (!st.Mode().IsRegular() || suffix == "-journal") {
			return stale("beside it stands " + suffix + ", which is none of ours")
		}
	}
	found := x.now().main
	sealed, err := x.sealed(ctx)
	if err != nil {
		return err
	}
	if err := x.attach(ctx, fresh, sealed); err != nil {
		return err
	}
	x.note()
	if !fresh && x.left.main != found { // after it was looked at, before SQLite held it
		return errForeign
	}
	return nil
}

// attach lets SQLite have the file.
func (x *Index) attach(ctx context.Context, fresh, sealed bool) (err error) {
	if x.db, err = sql.Open("sqlite", dsn(x.path)); err != nil {
		return err
	}
	x.db.SetMaxOpenConns(1) // one after another, and the file as we left it
	if x.pages > 0 {
		if _, err := x.db.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count=%d", x.pages)); err != nil {
			return err
		}
	}
	if fresh {
		return x.create(ctx)
	}
	return x.examine(ctx, sealed)
}

// place makes sure that the file is one that only we could have written. It is opened and closed again before
// SQLite has it, since a process that closes a file loses its locks on it (fcntl(2)).
func (x *Index) place() (fresh bool, err error) {
	dir, err := openDir(filepath.Dir(x.path))
	if err != nil {
		return false, err
	}
	defer dir.Close()
	f, err := dir.openFit(filepath.Base(x.path), os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		if err := x.remove(); err != nil { // what an earlier one left beside it
			return false, err
		}
		fresh = true
		f, err = dir.openFit(filepath.Base(x.path), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	} else if err != nil {
		return false, stale(err.Error())
	}
	if err != nil {
		return false, err
	}
	err = x.plausible(f)
	return fresh, errors.Join(err, f.Close())
}

// remove deletes the file and what SQLite keeps beside it.
func (x *Index) remove() error {
	x.shut()
	for _, suffix := range []string{sealSuffix, "-wal", "-shm", "-journal", ""} {
		if err := os.Remove(x.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &bailey.Error{Kind: bailey.Unavailable, Message: "the index of receipts cannot be made anew", Hint: "move " + x.path + suffix + " away", Err: err}
		}
	}
	return nil
}

func (x *Index) create(ctx context.Context) error {
	x.mark, x.whole, x.opened = mark{}, false, nil
	_, err := x.db.ExecContext(ctx, schema)
	return err
}

// finish makes an index whole that was fed for the first time.
func (x *Index) finish(ctx context.Context) error {
	if x.whole {
		return nil
	}
	defer x.note()
	if _, err := x.db.ExecContext(ctx, "BEGIN;"+indexes+fmt.Sprintf("PRAGMA user_version=%d; COMMIT", schemaVersion)); err != nil {
		return err
	}
	x.whole = true
	return nil
}

// examine refuses a file that is of another schema, or damaged unless it is sealed.
func (x *Index) examine(ctx context.Context, sealed bool) error {
	var version int
	var verdict string
	if err := x.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version != schemaVersion {
		return stale(fmt.Sprintf("its schema is %d, and not %d", version, schemaVersion))
	}
	if !sealed {
		if err := x.db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&verdict); err != nil {
			return err
		}
		if verdict != "ok" {
			return stale("it is damaged: " + verdict)
		}
	}
	if err := x.ours(ctx); err != nil {
		return err
	}
	x.mark, x.whole, x.opened = mark{}, true, nil
	err := x.mark.load(x.db.QueryRowContext(ctx, getMark))
	if errors.Is(err, sql.ErrNoRows) {
		return stale("it does not say how far it goes")
	}
	return err
}

// ours refuses a file that was made otherwise than ours are: a trigger, a view, a constraint could hide what comes.
func (x *Index) ours(ctx context.Context) error {
	rows, err := x.db.QueryContext(ctx, getStatements)
	if err != nil {
		return err
	}
	defer rows.Close()
	want := statements()
	for i := 0; rows.Next(); i++ {
		var sql string
		if err := rows.Scan(&sql); err != nil {
			return err
		}
		if i >= len(want) || sql != want[i] {
			return stale(fmt.Sprintf("it holds %.80q, which ours does not", sql))
		}
		want[i] = ""
	}
	if strings.Join(want, "") != "" {
		return stale("it lacks something that ours has")
	}
	return rows.Err()
}

// Result codes of SQLite that say nothing about the file's content (sqlite.org/rescode.html).
const (
	sqliteBusy, sqliteLocked, sqliteNoMem, sqliteReadOnly   = 5, 6, 7, 8
	sqliteInterrupt, sqliteIO, sqliteFull, sqliteCannotOpen = 9, 10, 13, 14
)

// classify makes stale what only another file can cure: all errors of SQLite but those of the disk, of memory and of
// somebody who holds the file.
func classify(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case sqliteBusy, sqliteLocked, sqliteNoMem, sqliteInterrupt, sqliteIO, sqliteReadOnly, sqliteCannotOpen:
		return unavailable("look at the disk and who else has the file open; it may be deleted at any time", err, "the index of receipts cannot be used")
	case sqliteFull:
		return unavailable("free some space where the index is", err, "the index of receipts has no space")
	}
	return stale(err.Error())
}
