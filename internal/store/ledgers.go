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

// A Receipt is a call in the ledger of a host.
type Receipt struct {
	Host       string    `json:"host"`
	HostName   string    `json:"host_name"`
	Seq        uint64    `json:"seq"` // of the intent
	Receipt    string    `json:"receipt"`
	Started    time.Time `json:"started"`
	OutcomeSeq uint64    `json:"outcome_seq,omitempty"`
	Status     string    `json:"status"`
	Agent      string    `json:"agent"`
	Session    string    `json:"session"`
	Capability string    `json:"capability"`
	Person     string    `json:"person,omitempty"` // for whom the agent worked
}

// AddReceipt stores an intent. A second one of the same receipt is ignored: the copy of the ledger shows it.
func (s *Store) AddReceipt(ctx context.Context, tx *Tx, organisation string, r Receipt) error {
	_, err := s.execChange(ctx, tx.tx, "INSERT INTO receipts (host, seq, organisation, receipt, started, outcome, status, "+
		"agent, session, capability, person) VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
		r.Host, int64(r.Seq), organisation, r.Receipt, toMicros(r.Started), r.Status, r.Agent, r.Session, r.Capability, r.Person)
	return err
}

// EndReceipt stores an outcome.
func (s *Store) EndReceipt(ctx context.Context, tx *Tx, host, receipt string, seq uint64, status string) error {
	_, err := s.execChange(ctx, tx.tx,
		"UPDATE receipts SET outcome = ?, status = ? WHERE host = ? AND receipt = ? AND outcome = 0",
		int64(seq), status, host, receipt)
	return err
}

// A ReceiptFilter selects receipts. A zero field selects all.
type ReceiptFilter struct {
	Host, Receipt, Agent, Session, Capability, Status string
	Since, Until                                      time.Time // started then or later; started before
	// The last receipt of the page before: its time, host and number.
	BeforeStarted time.Time
	BeforeHost    string
	BeforeSeq     uint64
	Limit         int
}

// Receipts returns receipts of an organisation, the newest first.
func (s *Store) Receipts(ctx context.Context, organisation string, f ReceiptFilter) ([]Receipt, error) {
	where, args := "r.organisation = ?", []any{organisation}
	add := func(condition string, values ...any) {
		where, args = where+" AND "+condition, append(args, values...)
	}
	for _, c := range []struct{ column, value string }{{"r.host", f.Host}, {"r.receipt", f.Receipt}, {"r.agent", f.Agent},
		{"r.session", f.Session}, {"r.capability", f.Capability}, {"r.status", f.Status}} {
		if c.value != "" {
			add(c.column+" = ?", c.value)
		}
	}
	if !f.Since.IsZero() {
		add("r.started >= ?", toMicros(f.Since))
	}
	if !f.Until.IsZero() {
		add("r.started < ?", toMicros(f.Until))
	}
	if f.BeforeHost != "" {
		add("(r.started, r.host, r.seq) < (?, ?, ?)", toMicros(f.BeforeStarted), f.BeforeHost, int64(f.BeforeSeq))
	}
	return queryRows(ctx, s, s.db, func(scan func(...any) error) (r Receipt, err error) {
		var started int64
		err = scan(&r.Host, &r.HostName, &r.Seq, &r.Receipt, &started, &r.OutcomeSeq, &r.Status, &r.Agent, &r.Session,
			&r.Capability, &r.Person)
		r.Started = fromMicros(started)
		return r, err
	}, "SELECT r.host, l.name, r.seq, r.receipt, r.started, r.outcome, r.status, r.agent, r.session, r.capability, r.person "+
		"FROM receipts r JOIN ledgers l ON l.host = r.host WHERE "+where+
		" ORDER BY r.started DESC, r.host DESC, r.seq DESC LIMIT ?", append(args, f.Limit)...)
}

// An Agent is a name that receipts give to their caller.
type Agent struct {
	Name  string    `json:"name"`
	Calls int       `json:"calls"`
	Last  time.Time `json:"last"`
}

// mostAgents limits a list of agents: their names come from hosts.
const mostAgents = 500

// Agents lists the agents that have made calls in an organisation since a time, the most recent first.
func (s *Store) Agents(ctx context.Context, organisation string, since time.Time) ([]Agent, error) {
	return queryRows(ctx, s, s.db, func(scan func(...any) error) (a Agent, err error) {
		var last int64
		err = scan(&a.Name, &a.Calls, &last)
		a.Last = fromMicros(last)
		return a, err
	}, "SELECT agent, COUNT(*), MAX(started) FROM receipts WHERE organisation = ? AND started >= ? "+
		"GROUP BY agent ORDER BY MAX(started) DESC, agent LIMIT ?", organisation, toMicros(since), mostAgents)
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
