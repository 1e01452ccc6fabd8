package store

import (
	"context"
	"encoding/json"
	"time"
)

// A Ledger is the copy of a host's ledger. It outlives its host.
type Ledger struct {
	Host         string
	Organisation string
	Name         string // of the host
	Origin       string
	FirstKey     string            // the key of its first registration
	Keys         []json.RawMessage // the data of its key entries
	Size         uint64
	Head         string   // the hash of the last entry, in hexadecimal
	Edge         []string // of the Merkle tree over the entries
	Segment      int      // of the last entry, from 1
	Checkpoint   string   // the last one, with the cosignature
	Signed       uint64   // its size
	Forked       time.Time
}

const ledgerColumns = "host, organisation, name, origin, first_key, keys, size, head, edge, segment, checkpoint, signed, forked"

func scanLedger(scan func(...any) error) (l Ledger, err error) {
	var keys, edge string
	var forked int64
	if err := scan(&l.Host, &l.Organisation, &l.Name, &l.Origin, &l.FirstKey, &keys, &l.Size, &l.Head, &edge, &l.Segment,
		&l.Checkpoint, &l.Signed, &forked); err != nil {
		return l, err
	}
	l.Forked = fromMicros(forked)
	if err := json.Unmarshal([]byte(keys), &l.Keys); err != nil {
		return l, err
	}
	return l, json.Unmarshal([]byte(edge), &l.Edge)
}

// BeginLedger returns the copy of a host's ledger. If there is none, it begins an empty one with that origin and key.
func (s *Store) BeginLedger(ctx context.Context, h Host, origin, key string) (l Ledger, err error) {
	_, err = s.execChange(ctx, s.db, "INSERT INTO ledgers ("+ledgerColumns+
		") VALUES (?, ?, ?, ?, ?, '[]', 0, '', '[]', 1, '', 0, 0) ON CONFLICT DO NOTHING",
		h.ID, h.Organisation, h.Name, origin, key)
	if err != nil {
		return l, err
	}
	return oneRow(ctx, s, s.db, "ledger", scanLedger, "SELECT "+ledgerColumns+" FROM ledgers WHERE host = ?", h.ID)
}

// LedgerOf returns the copy of a ledger in an organisation.
func (s *Store) LedgerOf(ctx context.Context, organisation, host string) (Ledger, error) {
	return oneRow(ctx, s, s.db, "ledger", scanLedger,
		"SELECT "+ledgerColumns+" FROM ledgers WHERE host = ? AND organisation = ?", host, organisation)
}

// LedgerIn returns the copy of a host's ledger, to change it in a transaction.
func (s *Store) LedgerIn(ctx context.Context, tx *Tx, host string) (Ledger, error) {
	return oneRow(ctx, s, tx.tx, "ledger", scanLedger, "SELECT "+ledgerColumns+" FROM ledgers WHERE host = ?", host)
}

// GrowLedger stores the new end of a copy.
func (s *Store) GrowLedger(ctx context.Context, tx *Tx, l Ledger) error {
	keys, err := json.Marshal(l.Keys)
	if err != nil {
		return err
	}
	edge, err := json.Marshal(l.Edge)
	if err != nil {
		return err
	}
	return s.changeOne(ctx, tx.tx, "ledger", "UPDATE ledgers SET keys = ?, size = ?, head = ?, edge = ?, segment = ?, "+
		"checkpoint = ?, signed = ? WHERE host = ? AND forked = 0",
		string(keys), int64(l.Size), l.Head, string(edge), l.Segment, l.Checkpoint, int64(l.Signed), l.Host)
}

// An Entry is a line of a ledger.
type Entry struct {
	Seq     uint64
	Segment int
	Kind    string
	Line    string
}

func scanEntry(scan func(...any) error) (e Entry, err error) {
	err = scan(&e.Seq, &e.Segment, &e.Kind, &e.Line)
	return e, err
}

// AddEntry stores a line.
func (s *Store) AddEntry(ctx context.Context, tx *Tx, host string, e Entry) error {
	_, err := s.execChange(ctx, tx.tx, "INSERT INTO entries (host, seq, segment, kind, line) VALUES (?, ?, ?, ?, ?)",
		host, int64(e.Seq), e.Segment, e.Kind, e.Line)
	return err
}

// Entries returns the lines of a copy after a number, at most limit.
func (s *Store) Entries(ctx context.Context, host string, after uint64, limit int) ([]Entry, error) {
	return queryRows(ctx, s, s.db, scanEntry,
		"SELECT seq, segment, kind, line FROM entries WHERE host = ? AND seq > ? ORDER BY seq LIMIT ?",
		host, int64(after), limit)
}

// A Fork is evidence that a host has shown two histories of its ledger.
type Fork struct {
	ID       string    `json:"id"`
	Found    time.Time `json:"found"`
	Reason   string    `json:"reason"`
	Evidence string    `json:"evidence" doc:"what the host sent: a signed checkpoint, or lines"`
}

// maxForks is how much evidence is kept for each host.
const maxForks = 20

// AddFork records evidence. From now on the copy does not grow.
func (s *Store) AddFork(ctx context.Context, host, reason, evidence string) error {
	return s.Change(ctx, func(tx *Tx) error {
		now := toMicros(s.now())
		_, err := s.execChange(ctx, tx.tx, "UPDATE ledgers SET forked = ? WHERE host = ? AND forked = 0", now, host)
		if err != nil {
			return err
		}
		has, err := s.Forks(ctx, host)
		if err != nil || len(has) >= maxForks {
			return err
		}
		_, err = s.execChange(ctx, tx.tx, "INSERT INTO forks (id, host, found, reason, evidence) VALUES (?, ?, ?, ?, ?)",
			newID("f-"), host, now, reason, evidence)
		return err
	})
}

// Forks lists the evidence against a host, the oldest first.
func (s *Store) Forks(ctx context.Context, host string) ([]Fork, error) {
	return queryRows(ctx, s, s.db, func(scan func(...any) error) (f Fork, err error) {
		var found int64
		err = scan(&f.ID, &found, &f.Reason, &f.Evidence)
		f.Found = fromMicros(found)
		return f, err
	}, "SELECT id, found, reason, evidence FROM forks WHERE host = ? ORDER BY found, id", host)
}

// SegmentSizes returns the bytes of each segment of a copy with its first entries.
func (s *Store) SegmentSizes(ctx context.Context, host string, size uint64) ([]int64, error) {
	return queryRows(ctx, s, s.db, func(scan func(...any) error) (n int64, err error) {
		err = scan(&n)
		return n, err
	}, "SELECT SUM(OCTET_LENGTH(line)) FROM entries WHERE host = ? AND seq <= ? GROUP BY segment ORDER BY segment",
		host, int64(size))
}
