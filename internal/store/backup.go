package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"bailey"
)

// A backup is a text of lines, each a JSON value, and the same for both databases, so that a restored backup is also the
// way from SQLite to PostgreSQL. The first line is a [BackupHead]. For each table, a line names its columns, and a list
// for each row follows. The last line has the number of rows and the SHA-256 of all bytes before it. A backup without it
// was not finished.

const backupFormat = "bailey-server backup 1"

// BackupHead is the first line of a backup.
type BackupHead struct {
	Format  string    `json:"format"`
	Schema  int64     `json:"schema"` // the version of the last migration
	Created time.Time `json:"created"`
}

type backupTable struct {
	Table   string   `json:"table"`
	Columns []string `json:"columns"`
}

type backupEnd struct {
	Rows   *int   `json:"rows"`
	SHA256 string `json:"sha256"`
}

// blob is how bytes stand in a row.
type blob struct {
	Base64 []byte `json:"base64"`
}

// maxLine bounds a line of a backup.
const maxLine = 64 << 20

// tablesOf returns the tables, each after those that it refers to.
func (s *Store) tablesOf(ctx context.Context, r runner) ([]backupTable, error) {
	names, columns := "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name",
		"SELECT name FROM pragma_table_info(?) ORDER BY cid"
	parents := `SELECT DISTINCT "table" FROM pragma_foreign_key_list(?)`
	if s.postgres {
		names = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() ORDER BY table_name"
		columns = "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND " +
			"table_name = ? ORDER BY ordinal_position"
		parents = "SELECT DISTINCT p.relname FROM pg_constraint c JOIN pg_class p ON p.oid = c.confrelid " +
			"JOIN pg_class t ON t.oid = c.conrelid JOIN pg_namespace n ON n.oid = t.relnamespace " +
			"WHERE c.contype = 'f' AND t.relname = ? AND n.nspname = current_schema()"
	}
	left, err := queryRows(ctx, s, r, scanText, names)
	if err != nil {
		return nil, err
	}
	left = slices.DeleteFunc(left, func(name string) bool { return name == "goose_db_version" })
	needs := map[string][]string{}
	for _, name := range left {
		if needs[name], err = queryRows(ctx, s, r, scanText, parents, name); err != nil {
			return nil, err
		}
	}
	var all []backupTable
	for len(left) > 0 {
		next := slices.IndexFunc(left, func(name string) bool {
			return !slices.ContainsFunc(needs[name], func(p string) bool { return p != name && slices.Contains(left, p) })
		})
		if next < 0 {
			return nil, bailey.Internal.Errorf("", "the tables %v refer to each other", left)
		}
		t := backupTable{Table: left[next]}
		if t.Columns, err = queryRows(ctx, s, r, scanText, columns, t.Table); err != nil {
			return nil, err
		}
		all, left = append(all, t), slices.Delete(left, next, next+1)
	}
	return all, nil
}

func quoteNames(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }

// Backup writes a backup of one moment, and returns the number of rows. The database can be in use.
func (s *Store) Backup(ctx context.Context, w io.Writer) (rows int, err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return 0, s.withKind(err)
	}
	defer conn.Close()
	begin := "BEGIN DEFERRED"
	if s.postgres {
		begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	}
	if _, err := conn.ExecContext(ctx, begin); err != nil {
		return 0, s.withKind(err)
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	sum := sha256.New()
	buffered := bufio.NewWriterSize(w, 64<<10)
	out := json.NewEncoder(lineLimit{io.MultiWriter(buffered, sum), s.maxLine})
	out.SetEscapeHTML(false)
	schema, err := s.schemaVersion(ctx, conn)
	if err != nil {
		return 0, err
	}
	if err := out.Encode(BackupHead{backupFormat, schema, s.now().UTC()}); err != nil {
		return 0, err
	}
	tables, err := s.tablesOf(ctx, conn)
	if err != nil {
		return 0, err
	}
	for _, t := range tables {
		n, err := s.backupTable(ctx, conn, out, t)
		if rows += n; err != nil {
			return rows, err
		}
	}
	if err := json.NewEncoder(buffered).Encode(backupEnd{&rows, hex.EncodeToString(sum.Sum(nil))}); err != nil {
		return rows, err
	}
	return rows, buffered.Flush()
}

// lineLimit refuses a line that readLine would refuse. An encoder of JSON writes each line at once.
type lineLimit struct {
	w   io.Writer
	max int
}

func (l lineLimit) Write(line []byte) (int, error) {
	if len(line) > l.max {
		return 0, bailey.Invalid.Errorf("remove the row, or back up the database by its own means",
			"a row has %d bytes, and a backup can hold %d", len(line), l.max)
	}
	return l.w.Write(line)
}

// schemaVersion returns the version of the last migration.
func (s *Store) schemaVersion(ctx context.Context, r runner) (int64, error) {
	return oneRow(ctx, s, r, "schema", func(scan func(...any) error) (n int64, err error) {
		err = scan(&n)
		return n, err
	}, "SELECT coalesce(max(version_id), 0) FROM goose_db_version")
}

func (s *Store) backupTable(ctx context.Context, r runner, out *json.Encoder, t backupTable) (n int, err error) {
	if err := out.Encode(t); err != nil {
		return 0, err
	}
	found, err := r.QueryContext(ctx, "SELECT "+quoteNames(t.Columns)+` FROM "`+t.Table+`" ORDER BY 1`)
	if err != nil {
		return 0, s.withKind(err)
	}
	defer found.Close()
	row, to := make([]any, len(t.Columns)), make([]any, len(t.Columns))
	for i := range row {
		to[i] = &row[i]
	}
	for ; found.Next(); n++ {
		if err := found.Scan(to...); err != nil {
			return n, s.withKind(err)
		}
		for i, v := range row {
			switch v := v.(type) {
			case nil, int64, string:
			case []byte:
				row[i] = blob{v}
			default:
				return n, bailey.Internal.Errorf("", "%s.%s is a %T, which a backup cannot hold", t.Table, t.Columns[i], v)
			}
		}
		if err := out.Encode(row); err != nil {
			return n, err
		}
	}
	return n, s.withKind(found.Err())
}

func damagedBackup(format string, args ...any) error {
	return bailey.Invalid.Errorf("use another backup", "the backup is not whole: "+format, args...)
}

// readBackup reads a backup to its end, and checks it. It calls table and row for each; both may be nil.
func readBackup(r io.Reader, head func(BackupHead) error, table func(backupTable) error, row func([]any) error) (int, error) {
	in, sum := bufio.NewReaderSize(r, 64<<10), sha256.New()
	rows, width := 0, -1
	for n := 1; ; n++ {
		line, err := readLine(in)
		if err != nil {
			return 0, damagedBackup("line %d: %w", n, err)
		}
		var end backupEnd
		var t backupTable
		var values []any
		switch {
		case n == 1:
			var h BackupHead
			if err := decodeLine(line, &h); err != nil || h.Format != backupFormat {
				return 0, bailey.Invalid.New("this file is not a backup of bailey-server", "see bailey-server backup")
			}
			if err := head(h); err != nil {
				return 0, err
			}
		case line[0] == '[':
			if err := decodeLine(line, &values); err != nil || len(values) != width {
				return 0, damagedBackup("line %d is not a row of %d values", n, width)
			}
			for i := range values {
				if values[i], err = restoredValue(values[i]); err != nil {
					return 0, damagedBackup("line %d: %w", n, err)
				}
			}
			if err := row(values); err != nil {
				return 0, err
			}
			rows++
		case decodeLine(line, &end) == nil && end.Rows != nil:
			if *end.Rows != rows || end.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
				return 0, damagedBackup("its sum does not match")
			}
			if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
				return 0, damagedBackup("something follows its end")
			}
			return rows, nil
		case decodeLine(line, &t) == nil && t.Table != "":
			width = len(t.Columns)
			if err := table(t); err != nil {
				return 0, err
			}
		default:
			return 0, damagedBackup("line %d is neither a table nor a row", n)
		}
		sum.Write(line)
	}
}

// readLine returns a line with its end.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil && len(line) > 1:
			return line, nil
		case err == nil:
			return nil, errors.New("an empty line")
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, errors.New("the end is missing")
		case len(line) > maxLine:
			return nil, errors.New("the line is too long")
		}
	}
}

func decodeLine(line []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	d.UseNumber()
	return d.Decode(to)
}

// restoredValue returns the value of a column.
func restoredValue(v any) (any, error) {
	switch v := v.(type) {
	case nil, string:
		return v, nil
	case json.Number:
		return v.Int64()
	case map[string]any:
		if text, ok := v["base64"].(string); ok && len(v) == 1 {
			return base64.StdEncoding.Strict().DecodeString(text)
		}
	}
	return nil, fmt.Errorf("a value that no column has")
}

// Restore reads a backup into a database that is empty, and brings its schema up to this version. A backup that is not
// whole, or a database that holds anything, is refused before anything is written. Sessions, and links
// that work once, are not restored.
func Restore(ctx context.Context, c Config, backup io.ReadSeeker) (rows int, err error) {
	var head BackupHead
	none := func([]any) error { return nil }
	if _, err := readBackup(backup, func(h BackupHead) error { head = h; return nil },
		func(backupTable) error { return nil }, none); err != nil {
		return 0, err
	}
	if _, err := backup.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	s, err := connect(c)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.applyMigrations(ctx, head.Schema); err != nil {
		return 0, err
	}
	err = s.inTransaction(ctx, func(tx *sql.Tx) (err error) {
		if _, err := backup.Seek(0, io.SeekStart); err != nil { // the transaction may be repeated
			return err
		}
		rows, err = s.restoreRows(ctx, tx, head, backup)
		return err
	})
	if err != nil {
		return 0, err
	}
	return rows, s.applyMigrations(ctx, 0)
}

func (s *Store) restoreRows(ctx context.Context, tx *sql.Tx, head BackupHead, backup io.Reader) (int, error) {
	if has, err := s.schemaVersion(ctx, tx); err != nil || has != head.Schema {
		return 0, errors.Join(err, bailey.Conflict.Errorf("restore into a new database",
			"the database has schema %d, and the backup %d", has, head.Schema))
	}
	tables, err := s.tablesOf(ctx, tx)
	if err != nil {
		return 0, err
	}
	for _, t := range tables {
		n, err := queryRows(ctx, s, tx, func(func(...any) error) (int, error) { return 1, nil },
			`SELECT 1 FROM "`+t.Table+`" LIMIT 1`)
		if err != nil {
			return 0, err
		}
		if len(n) > 0 {
			return 0, bailey.Conflict.Errorf("restore into a new database, or move this one away",
				"the database is not empty: the table %s has rows", t.Table)
		}
	}
	insert := ""
	rows, err := readBackup(backup, func(BackupHead) error { return nil }, func(t backupTable) error {
		known := slices.IndexFunc(tables, func(k backupTable) bool { return k.Table == t.Table })
		if known < 0 || !slices.Equal(tables[known].Columns, t.Columns) {
			return damagedBackup("the table %.40q has other columns, or does not exist", t.Table)
		}
		insert = `INSERT INTO "` + t.Table + `" (` + quoteNames(t.Columns) + ") VALUES (?" +
			strings.Repeat(", ?", len(t.Columns)-1) + ")"
		return nil
	}, func(row []any) error {
		_, err := s.execChange(ctx, tx, insert, row...)
		return err
	})
	if err != nil {
		return 0, err
	}
	dropped, err := s.dropShortLived(ctx, tx, tables)
	return rows - dropped, err
}

// dropShortLived removes sessions, ceremonies, invitations and the setup link from a restored database. Some of them were
// used or ended after the backup, and must not work again. It returns the number of rows.
func (s *Store) dropShortLived(ctx context.Context, tx *sql.Tx, tables []backupTable) (int, error) {
	all := 0
	drop := func(table, where string) error {
		if !slices.ContainsFunc(tables, func(t backupTable) bool { return t.Table == table }) {
			return nil // an older schema
		}
		n, err := s.execChange(ctx, tx, "DELETE FROM "+table+where)
		all += int(n)
		return err
	}
	err := errors.Join(drop("sessions", ""), drop("ceremonies", ""), drop("invitations", ""),
		drop("settings", " WHERE name = 'setup'"))
	return all, err
}
