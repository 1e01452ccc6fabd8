package store

import (
	"context"
	"database/sql"
	"io"
	"slices"
	"strings"
)

// MigrateTo creates a database as an older version of this program did, and executes statements.
func MigrateTo(ctx context.Context, c Config, version int64, statements ...string) error {
	s, err := connect(c)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.applyMigrations(ctx, version); err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// Versions lists the versions of all migrations.
func Versions() (all []int64, err error) {
	s := &Store{}
	if s.db, err = sql.Open("sqlite", ":memory:"); err != nil {
		return nil, err
	}
	defer s.Close()
	p, err := s.newProvider()
	if err != nil {
		return nil, err
	}
	for _, source := range p.ListSources() {
		all = append(all, source.Version)
	}
	slices.Sort(all)
	return all, nil
}

// TableNames lists the tables with their columns.
func (s *Store) TableNames(ctx context.Context) (map[string][]string, error) {
	tables, err := s.tablesOf(ctx, s.db)
	all := map[string][]string{}
	for _, t := range tables {
		all[t.Table] = t.Columns
	}
	return all, err
}

// CheckBackup reads a backup as Restore does before it writes anything.
func CheckBackup(r io.Reader) error {
	_, err := readBackup(r, func(BackupHead) error { return nil }, func(backupTable) error { return nil },
		func([]any) error { return nil })
	return err
}

// LimitLines sets the limit of a line of a backup.
func (s *Store) LimitLines(bytes int) { s.maxLine = bytes }

// ExplainReceipts returns how SQLite finds receipts.
func (s *Store) ExplainReceipts(ctx context.Context, organisation string, f ReceiptFilter) (string, error) {
	where, order, args := f.buildQuery(organisation)
	lines, err := queryRows(ctx, s, s.db, func(scan func(...any) error) (line string, err error) {
		var skip int
		return line, scan(&skip, &skip, &skip, &line)
	}, "EXPLAIN QUERY PLAN SELECT "+receiptColumns+" FROM receipts r WHERE "+where+order+" LIMIT ?",
		append(args, f.Limit)...)
	return strings.Join(lines, "\n"), err
}
