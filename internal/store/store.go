// Package store is the database of the control plane: accounts, sessions, organisations with their members,
// invitations, tokens and hosts. It is SQLite in a file, or PostgreSQL. The statements are the same for both, so each
// test runs against both.
//
// The store keeps the SHA-256 of tokens, never a token: see [Hash]. It decides nothing about who may do what. It does
// keep its data whole: an organisation always has an owner, and what ends with an account or an organisation is removed
// with it.
//
// Errors have a kind: NotFound, Conflict (it exists, or changed meanwhile), Invalid, and Unavailable if the database
// does not answer.
package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"bailey"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Config says where the data is.
type Config struct {
	// URL is a PostgreSQL URL (postgres://…), or the path of an SQLite file, which is created with mode 0600.
	URL string
	// Now is the clock, time.Now if it is nil.
	Now func() time.Time
}

// Store is an open database. Its methods may be called concurrently.
type Store struct {
	db       *sql.DB
	postgres bool
	now      func() time.Time
	maxLine  int // of a backup
}

// Open opens the database and brings its schema up to this version. If several processes open it at the same time, one
// of them changes the schema and the others wait.
func Open(ctx context.Context, c Config) (*Store, error) {
	s, err := connect(c)
	if err != nil {
		return nil, err
	}
	if err := s.applyMigrations(ctx, 0); err != nil {
		s.db.Close()
		return nil, err
	}
	return s, nil
}

// connect returns a database whose schema may be older.
func connect(c Config) (*Store, error) {
	s := &Store{now: c.Now, maxLine: maxLine, postgres: strings.HasPrefix(c.URL, "postgres://") || strings.HasPrefix(c.URL,
		"postgresql://")}
	if s.now == nil {
		s.now = time.Now
	}
	var err error
	if s.postgres {
		s.db, err = sql.Open("pgx", c.URL)
	} else {
		s.db, err = openFile(c.URL)
	}
	if err != nil {
		return nil, bailey.Invalid.Wrap(err, "cannot open the database",
			"set the database to a file or to a postgres:// URL")
	}
	return s, nil
}

// openFile opens an SQLite file. Transactions take the write lock when they begin, so that none fails half-way because
// another has written.
func openFile(name string) (*sql.DB, error) {
	if scheme, _, url := strings.Cut(name, "://"); url {
		return nil, fmt.Errorf("%q is not the scheme of a PostgreSQL URL", scheme) // the rest can hold a password
	}
	name, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("other users may read %s: its mode is %v, not 0600", name, info.Mode().Perm())
	}
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(10000)", "journal_mode(wal)", "foreign_keys(1)",
		"synchronous(full)"}}
	return sql.Open("sqlite", (&url.URL{Scheme: "file", Path: name, RawQuery: q.Encode()}).String())
}

// Schemas returns the version of the schema that a database has, and that of this program.
func Schemas(ctx context.Context, c Config) (has, newest int64, err error) {
	s, err := connect(c)
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	p, err := s.newProvider()
	if err == nil {
		has, newest, err = p.GetVersions(ctx)
	}
	return has, newest, s.withKind(err)
}

// newProvider returns what applies migrations.
func (s *Store) newProvider() (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	dialect, options := goose.DialectSQLite3, []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if s.postgres {
		dialect = goose.DialectPostgres
		locker, err := lock.NewPostgresSessionLocker()
		if err != nil {
			return nil, err
		}
		options = append(options, goose.WithSessionLocker(locker))
	}
	return goose.NewProvider(dialect, s.db, files, options...)
}

// applyMigrations applies the migrations that the database does not have, up to a version, or all if it is 0.
func (s *Store) applyMigrations(ctx context.Context, version int64) error {
	p, err := s.newProvider()
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		err := s.updateSchema(ctx, p, version)
		// SQLite has no lock around a schema change. If another process made the same change, it is rolled back here,
		// and at the next try the database has it.
		var lite *sqlite.Error
		if err == nil || try == 50 || !errors.As(err, &lite) ||
			lite.Code() != sqlite3.SQLITE_ERROR && lite.Code()&0xff != sqlite3.SQLITE_BUSY {
			return s.withKind(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// updateSchema applies the missing migrations once.
func (s *Store) updateSchema(ctx context.Context, p *goose.Provider, version int64) error {
	has, newest, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if has > newest {
		return bailey.Conflict.Errorf("start the version of bailey-server that used this database last",
			"the database has schema %d, and this program knows only %d", has, newest)
	}
	switch {
	case version > newest:
		return bailey.Conflict.Errorf("use a newer version of bailey-server",
			"the backup has schema %d, and this program knows only %d", version, newest)
	case version == 0:
		_, err = p.Up(ctx)
	case version > has:
		_, err = p.UpTo(ctx, version)
	}
	return err
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// Ping returns nil if the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.withKind(s.db.PingContext(ctx)) }

// Hash is the form in which a token is stored: SHA-256, in hexadecimal.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// newID returns an identifier that cannot be guessed: the prefix and 26 characters.
func newID(prefix string) string {
	var b [16]byte
	rand.Read(b[:])
	return prefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

// runner is a database or a transaction.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// bindPlaceholders writes the placeholders as the database wants them. No statement has a question mark otherwise.
func (s *Store) bindPlaceholders(query string) string {
	if !s.postgres {
		return query
	}
	var b strings.Builder
	for n, rest := 1, query; ; n++ {
		before, after, found := strings.Cut(rest, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		rest = after
	}
}

// execChange executes a statement and returns how many rows it changed.
func (s *Store) execChange(ctx context.Context, r runner, query string, args ...any) (int64, error) {
	result, err := r.ExecContext(ctx, s.bindPlaceholders(query), args...)
	if err != nil {
		return 0, s.withKind(err)
	}
	n, err := result.RowsAffected()
	return n, s.withKind(err)
}

// changeOne executes a statement that must change a row. Otherwise the error is NotFound.
func (s *Store) changeOne(ctx context.Context, r runner, thing, query string, args ...any) error {
	n, err := s.execChange(ctx, r, query, args...)
	if err == nil && n == 0 {
		err = notFound(thing)
	}
	return err
}

func notFound(thing string) error { return bailey.NotFound.New("there is no such "+thing, "") }

// queryRows returns what scan makes of each row.
func queryRows[T any](ctx context.Context, s *Store, r runner, scan func(scan func(...any) error) (T, error),
	query string,
	args ...any) ([]T, error) {
	found, err := r.QueryContext(ctx, s.bindPlaceholders(query), args...)
	if err != nil {
		return nil, s.withKind(err)
	}
	defer found.Close()
	all := []T{}
	for found.Next() {
		one, err := scan(found.Scan)
		if err != nil {
			return nil, s.withKind(err)
		}
		all = append(all, one)
	}
	return all, s.withKind(found.Err())
}

// oneRow returns the only row. If there is none, the error is NotFound.
func oneRow[T any](ctx context.Context, s *Store, r runner, thing string, scan func(scan func(...any) error) (T, error),
	query string, args ...any) (T, error) {
	all, err := queryRows(ctx, s, r, scan, query, args...)
	if err == nil && len(all) == 0 {
		err = notFound(thing)
	}
	if err != nil {
		var none T
		return none, err
	}
	return all[0], nil
}

// inTransaction runs f in a transaction. With PostgreSQL it is serializable, and repeated if another one was in its
// way.
func (s *Store) inTransaction(ctx context.Context, f func(tx *sql.Tx) error) error {
	for try := 0; ; try++ {
		err := s.tryTransaction(ctx, f)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "40001" && pg.Code != "40P01" || try == 20 {
			return err
		}
	}
}

func (s *Store) tryTransaction(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		return s.withKind(err)
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return err
	}
	return s.withKind(tx.Commit())
}

// withKind gives an error of the database its kind.
func (s *Store) withKind(err error) error {
	var kind bailey.Kind
	var pg *pgconn.PgError
	var lite *sqlite.Error
	switch {
	case err == nil || errors.As(err, &kind), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &pg):
		switch pg.Code {
		case "23505":
			return bailey.Conflict.Wrap(err, "it exists already", "")
		case "23503", "23514":
			return bailey.Invalid.Wrap(err, "the database refuses it", "")
		}
	case errors.As(err, &lite):
		switch lite.Code() {
		case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
			return bailey.Conflict.Wrap(err, "it exists already", "")
		case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, sqlite3.SQLITE_CONSTRAINT_CHECK:
			return bailey.Invalid.Wrap(err, "the database refuses it", "")
		case sqlite3.SQLITE_FULL:
			return bailey.Unavailable.Wrap(err, "the disk of the database is full", "free space on it")
		}
	}
	return bailey.Unavailable.Wrap(err, "the database does not answer", "see the log of bailey-server")
}

// toMicros is a time as it is stored.
func toMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// The times that have a form in JSON, without the first.
var firstMicro, lastMicro = time.Time{}.UnixMicro(), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).UnixMicro()

// fromMicros is the reverse of toMicros. A time that has no form in JSON becomes the next one that has.
func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(min(max(n, firstMicro), lastMicro)).UTC()
}
