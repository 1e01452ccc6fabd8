package ledger

import (
	"bailey/internal/receipts"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

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
