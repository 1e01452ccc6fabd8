// Package index finds receipts without reading the whole ledger: a view in a SQLite file, which may be deleted at any time.
package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger"
	"bailey/internal/receipts"
)

// Ledger is the log whose receipts an Index finds: a [ledger.Log].
type Ledger interface {
	// Durable returns the position after the last durable entry.
	Durable() ledger.Position
	// Extent returns the number of durable entries, and of their segments and bytes.
	Extent() (entries uint64, segments int, bytes int64, err error)
	// Entries yields the entries after a place up to a position, checked against the format and the chain.
	Entries(ctx context.Context, after ledger.Place, to ledger.Position) iter.Seq2[ledger.Placed, error]
	// Lines returns a reader of the lines at given places, each checked against the chain.
	Lines() *ledger.Lines
	// Find searches all durable entries.
	Find(ctx context.Context, f receipts.Filter) (receipts.Page, error)
}

// Config configures an Index.
type Config struct {
	Path   string // of the file, in a directory that only this user can access
	Ledger Ledger
	Log    *slog.Logger // for operators; if nil, nothing is logged
}

// Index finds receipts without reading the whole ledger. It is a view: a SQLite file that may be deleted at any time.
// It holds only the places of receipts. Their content is read from the ledger and checked each time.
//
// The index is never ahead of the ledger. It is fed only with durable entries, in transactions that carry the number,
// hash and place of the last entry. Before each answer, that entry must be at the same place in the ledger. An index
// that is behind catches up. If an index is of another ledger or schema, damaged, ahead (the ledger was restored from a
// copy) or written by another process, it is deleted and rebuilt, and the operator's log says so. While it cannot be
// used, the ledger is scanned instead. No call waits for it or fails with it.
//
// While the index is open, no other SQLite can read or write it, and its files must be unchanged before and after each
// answer. While it is closed, a process that can write it can forge it. If no receipt may be missed, read the ledger
// ([Index.Scan], [ledger.Reader]).
type Index struct {
	path   string
	ledger Ledger
	log    *slog.Logger
	pages  int // limit of the file in pages, 0 for no limit; for tests

	scans  chan struct{} // held by the caller that scans the ledger
	turn   chan struct{} // held by the caller that uses the fields below
	db     *sql.DB       // nil until the first query
	left   indexStamps   // the files after our last write
	mark   indexProgress
	whole  bool                        // it was fed once, and has its indexes
	opened map[bailey.ReceiptID]uint64 // fed since it was opened, without an outcome
	fed    ledger.Position             // the durable position when it was last fed
}

// New returns an index. It opens no file.
func New(c Config) *Index {
	x := &Index{path: c.Path, ledger: c.Ledger, log: c.Log, turn: make(chan struct{}, 1), scans: make(chan struct{}, 1),
		fed: c.Ledger.Durable()}
	if x.log == nil {
		x.log = slog.New(slog.DiscardHandler)
	}
	return x
}

// staleError is the reason why an index is discarded, such as another schema.
type staleError = ledger.Misplaced

// Find returns the receipts that match f, up to the durable end of the ledger at the time of the call.
func (x *Index) Find(ctx context.Context, f receipts.Filter) (receipts.Page, error) {
	if err := f.Check(); err != nil {
		return receipts.Page{}, err
	}
	page, err := x.findIndexed(ctx, f)
	if err == nil || ctx.Err() != nil {
		return page, err
	}
	x.log.Warn("the index of receipts failed: reading the ledger instead", "file", x.path, "err", err)
	return x.Scan(ctx, f)
}

// Scan searches the ledger itself for the receipts that match f, one scan at a time. A scan takes long, and callers may
// ask often.
func (x *Index) Scan(ctx context.Context, f receipts.Filter) (receipts.Page, error) {
	select {
	case x.scans <- struct{}{}:
		defer func() { <-x.scans }()
		return x.ledger.Find(ctx, f)
	case <-ctx.Done():
		return receipts.Page{}, context.Cause(ctx)
	}
}

func (x *Index) findIndexed(ctx context.Context, f receipts.Filter) (page receipts.Page, err error) {
	if err := x.lock(ctx); err != nil {
		return page, err
	}
	defer x.unlock()
	err = x.useOrRebuild(ctx, func() error {
		if err := x.catchUp(ctx, nil); err != nil {
			return err
		}
		page, err = x.queryReceipts(ctx, f)
		return err
	})
	return page, err
}

// useOrRebuild calls do with the index. If the index is stale, it calls do again with a new one.
func (x *Index) useOrRebuild(ctx context.Context, do func() error) error {
	err := x.useIndex(ctx, do)
	var why staleError
	if !errors.As(err, &why) {
		return err
	}
	x.log.Warn("rebuilding the index of receipts", "file", x.path, "why", err)
	if err := x.removeFiles(); err != nil {
		return err
	}
	return x.useIndex(ctx, do)
}

func (x *Index) useIndex(ctx context.Context, do func() error) error {
	if err := x.ensureOpen(ctx); err != nil {
		x.closeDB() // not half open
		return classifyError(err)
	}
	err := do()
	// a file that was deleted meanwhile was valid
	if now := x.readStamps(); err == nil && now != x.left && now.main != (fileStamp{}) {
		err = errForeign
	}
	return classifyError(err)
}

func (x *Index) lock(ctx context.Context) error {
	select {
	case x.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (x *Index) unlock() { <-x.turn }

// Close closes the file. If the file is complete and unchanged since our last write, Close seals it. If another process
// wrote to it, Close deletes it.
func (x *Index) Close() error {
	x.turn <- struct{}{}
	defer x.unlock()
	now := x.readStamps()
	switch {
	case x.db == nil:
		return nil
	case now.main == (fileStamp{}), now == x.left && !x.whole:
		return x.closeDB()
	case now == x.left:
		err := x.sealFile()
		if err == nil || !errors.Is(err, errForeign) {
			return err
		}
	}
	x.log.Warn("deleting the index of receipts", "file", x.path, "why", errForeign)
	return x.removeFiles()
}

func (x *Index) closeDB() error {
	if x.db == nil {
		return nil
	}
	err := x.db.Close()
	x.db = nil
	return err
}

// queryReceipts reads the rows that match f, and the entries that they refer to from the ledger.
func (x *Index) queryReceipts(ctx context.Context, f receipts.Filter) (receipts.Page, error) {
	page := receipts.Page{Records: []receipts.Record{}, Origin: x.mark.origin,
		Head: audit.Head{Seq: x.mark.at.Seq, Hash: x.mark.at.Hash}}
	places, err := x.queryPlaces(ctx, f, &page.More)
	if err != nil {
		return page, err
	}
	lines := x.ledger.Lines()
	defer lines.Close()
	for _, p := range places {
		r, err := lines.Receipt(p.intent, p.outcome)
		if err != nil {
			return page, err
		}
		if !f.Matches(r) {
			return page, staleError(fmt.Sprintf("its row of entry %d differs from the ledger", r.Seq))
		}
		page.Records = append(page.Records, r)
	}
	return page, nil
}

// queryPlaces returns the places of the matching receipts, at most one page, and sets more if there are others.
func (x *Index) queryPlaces(ctx context.Context, f receipts.Filter, more *bool) (list []receiptLines, err error) {
	size := x.mark.at.Seq
	if f.Size > 0 {
		size = min(size, f.Size)
	}
	q := questionFor(&f, size)
	if ok, err := x.narrowRange(ctx, f, &q); !ok {
		return nil, err
	}
	statement, args := q.buildSQL(&f, f.Limit+1)
	rows, err := x.db.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for bytes := 0; rows.Next(); {
		var p receiptLines
		if err := p.scanRow(rows); err != nil {
			return nil, err
		}
		if p.outcome.Seq > size {
			p.outcome = ledger.Place{}
		}
		bytes += p.intent.Length + p.outcome.Length
		if len(list) == f.Limit || len(list) > 0 && bytes > receipts.MaxPage {
			*more = true
			break
		}
		list = append(list, p)
	}
	return list, rows.Err()
}

// narrowRange narrows a question with times to the range of numbers that can match: no start is more than late behind the
// latest start before it. It returns false if no receipt can match.
func (x *Index) narrowRange(ctx context.Context, f receipts.Filter, q *indexQuery) (bool, error) {
	at := func(statement string, time int64) (seq uint64, ok bool, err error) {
		err = x.db.QueryRowContext(ctx, statement, time).Scan(&seq)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, false, nil
		}
		return seq, err == nil, err
	}
	if !f.Since.IsZero() {
		q.addCondition(" AND started >= ?", f.Since.UnixMicro())
		seq, ok, err := at(sinceSeq, f.Since.UnixMicro())
		if !ok {
			return false, err
		}
		q.from = max(q.from, seq)
	}
	if !f.Until.IsZero() {
		q.addCondition(" AND started < ?", f.Until.UnixMicro())
		seq, ok, err := at(untilSeq, f.Until.UnixMicro()+x.mark.late)
		if !ok {
			return false, err
		}
		q.to = min(q.to, seq)
	}
	return true, nil
}

// schemaVersion is the version of the index (PRAGMA user_version), written when the index is complete. If an index has
// another version, it is rebuilt.
const schemaVersion = 1

// schema defines the index. A row is a receipt, numbered like its intent's entry; times are microseconds since 1970.
//
// segment, offset and length give the place of a line, prev and hash the hash before it and its own. high is the latest
// start up to a row. It never decreases, so a time corresponds to a range of numbers even if clocks are set back. Each
// column that a query depends on is in an index as well as in its row, so that integrity_check compares them.
const schema = `
CREATE TABLE mark (
	one INTEGER PRIMARY KEY CHECK (one = 1),
	origin TEXT NOT NULL,
	seq INTEGER NOT NULL, segment INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL, prev BLOB NOT NULL, hash BLOB NOT NULL,
	high INTEGER NOT NULL, late INTEGER NOT NULL
) STRICT;
CREATE TABLE receipt (
	seq INTEGER PRIMARY KEY, id TEXT NOT NULL,
	session TEXT NOT NULL, capability TEXT NOT NULL, agent TEXT NOT NULL, door TEXT NOT NULL, dryrun INTEGER NOT NULL,
	started INTEGER NOT NULL, high INTEGER NOT NULL,
	segment INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL, prev BLOB NOT NULL, hash BLOB NOT NULL,
	status TEXT NOT NULL, decision TEXT NOT NULL DEFAULT '', ended INTEGER,
	oseq INTEGER NOT NULL DEFAULT 0, osegment INTEGER, ooffset INTEGER, olength INTEGER, oprev BLOB, ohash BLOB
) STRICT;
`

// indexes are created last: sorting all rows once is many times quicker than inserting each at its place.
const indexes = `
CREATE UNIQUE INDEX by_id ON receipt (id);
CREATE INDEX by_high ON receipt (high, seq, started, oseq);
CREATE INDEX by_session ON receipt (session);
CREATE INDEX by_status ON receipt (status);
CREATE INDEX by_capability ON receipt (capability);
CREATE INDEX by_agent ON receipt (agent);
CREATE INDEX by_capability_status ON receipt (capability, status);
CREATE INDEX by_agent_status ON receipt (agent, status);
CREATE INDEX by_agent_capability ON receipt (agent, capability);
CREATE INDEX by_agent_capability_status ON receipt (agent, capability, status);
`

// schemaStatements returns the statements of a complete index, as SQLite keeps them.
func schemaStatements() []string {
	var list []string
	for s := range strings.SplitSeq(schema+indexes, ";") {
		if s = strings.TrimSpace(s); s != "" {
			list = append(list, s)
		}
	}
	return list
}

const getStatements = `SELECT coalesce(sql, name) FROM sqlite_schema ORDER BY rowid`

const (
	insertReceipt = `INSERT INTO receipt (seq, id, session, capability, agent, door, dryrun, started, high, segment, offset, length, prev, hash,
		status, decision, ended, oseq, osegment, ooffset, olength, oprev, ohash) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	closeReceipt = `UPDATE receipt SET status=?, decision=?, ended=?, oseq=?, osegment=?, ooffset=?, olength=?, oprev=?, ohash=? WHERE seq=? AND oseq=0`
	openReceipt  = `SELECT seq FROM receipt WHERE id=?`
	setMark      = `INSERT OR REPLACE INTO mark VALUES (1,?,?,?,?,?,?,?,?,?)`
	getMark      = `SELECT origin, seq, segment, offset, length, prev, hash, high, late FROM mark`
	sinceSeq     = `SELECT seq FROM receipt INDEXED BY by_high WHERE high >= ? ORDER BY high, seq LIMIT 1`
	untilSeq     = `SELECT seq FROM receipt INDEXED BY by_high WHERE high < ? ORDER BY high DESC, seq DESC LIMIT 1`
	selectPlaces = `SELECT seq, segment, offset, length, prev, hash, oseq, osegment, ooffset, olength, oprev, ohash FROM receipt `
)

// sqliteDSN returns the name under which the driver opens path. The file is locked from the first statement to the last, so
// that no other SQLite writes rows between two of ours (sqlite.org/pragma.html, locking_mode; it must come before WAL,
// so that no memory is shared). WAL keeps the file intact if the process is killed. It is not synced with each group,
// which costs only another pass over the ledger after a crash of the machine. Sorted rows stay in memory, about 50
// bytes a receipt, and out of /tmp.
func sqliteDSN(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") { // a drive letter
		path = "/" + path
	}
	pragmas := url.Values{"_pragma": {"locking_mode(EXCLUSIVE)", "journal_mode(WAL)", "synchronous(NORMAL)",
		"temp_store(MEMORY)", "busy_timeout(2000)",
		"cache_size(-16384)", "journal_size_limit(4194304)", "trusted_schema(OFF)"}, "_txlock": {"immediate"}}
	return (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: pragmas.Encode()}).String()
}

// indexQuery is a filter in the form of an index query.
type indexQuery struct {
	index    string // the index to use; "" for the order of numbers
	from, to uint64 // range of the numbers, both included
	where    []string
	args     []any
}

// questionFor converts a filter for an index that holds size entries. It names the index to use instead of leaving it to the
// planner: each has the equalities in front and the number behind them, so that no row must be sorted.
func questionFor(f *receipts.Filter, size uint64) (q indexQuery) {
	q.from, q.to = f.After+1, size
	if f.Before > 0 {
		q.to = min(size, f.Before-1)
	}
	direct := f.ID == ""
	q.addEquality("id", string(f.ID), false)
	q.addEquality("session", string(f.Session), direct)
	q.addEquality("agent", f.Agent, direct && f.Session == "")
	q.addEquality("capability", string(f.Capability), direct && f.Session == "")
	if f.Status == receipts.Open && f.Size > 0 {
		q.addCondition(" AND (status = ? OR oseq > ?)", string(receipts.Open), size) // receipts that ended later were still open
		return q
	}
	q.addEquality("status", string(f.Status), direct && f.Session == "")
	if f.Status != "" {
		q.addCondition(" AND oseq <= ?", size)
	}
	return q
}

func (q *indexQuery) addCondition(condition string, args ...any) {
	q.where, q.args = append(q.where, condition), append(q.args, args...)
}

func (q *indexQuery) addEquality(column, value string, indexed bool) {
	if value == "" {
		return
	}
	q.addCondition(" AND "+column+" = ?", value)
	if indexed {
		q.index += "_" + column
	}
}

// buildSQL returns the statement for at most rows rows, and its arguments. It bounds the number once on either side, because
// the planner would take any of several bounds.
func (q *indexQuery) buildSQL(f *receipts.Filter, rows int) (statement string, args []any) {
	from := ""
	switch {
	case q.index != "":
		from = "INDEXED BY by" + q.index
	case f.ID == "":
		from = "NOT INDEXED"
	}
	order := "DESC"
	if f.Oldest {
		order = "ASC"
	}
	statement = selectPlaces + from + " WHERE seq BETWEEN ? AND ?" + strings.Join(q.where, "") + " ORDER BY seq " +
		order + " LIMIT ?"
	return statement, slices.Concat([]any{q.from, q.to}, q.args, []any{rows})
}
