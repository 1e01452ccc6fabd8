package store

import (
	"context"
	"strings"
	"time"
)

// A Receipt is a call in the ledger of a host.
type Receipt struct {
	Host       string    `json:"host"`
	HostName   string    `json:"host_name"`
	Seq        uint64    `json:"seq"` // of the intent
	Receipt    string    `json:"receipt"`
	Started    time.Time `json:"started"`
	OutcomeSeq uint64    `json:"outcome_seq,omitempty"`
	Ended      time.Time `json:"ended,omitzero"`
	Status     string    `json:"status"`
	Decision   string    `json:"decision" doc:"allow, ask or deny; empty before it"`
	Agent      string    `json:"agent"`
	Person     string    `json:"person,omitempty"`
	Session    string    `json:"session"`
	Capability string    `json:"capability"`
}

// An Ending is what the lists keep of an outcome.
type Ending struct {
	Seq                       uint64
	Status, Decision          string
	Ended                     time.Time
	Search                    string // is added to that of the intent
	Denied, Asked, Failed     bool
	Models                    int
	InputTokens, OutputTokens int64
	MicroUSD                  int64
}

// AddReceipt stores an intent and counts it in its session. A second one of the same receipt is ignored: the copy of the
// ledger shows it. Search is the text, in lower case, that a search by text finds.
func (s *Store) AddReceipt(ctx context.Context, tx *Tx, organisation string, r Receipt, search string) error {
	n, err := s.execChange(ctx, tx.tx, "INSERT INTO receipts (host, seq, organisation, receipt, started, outcome, status, "+
		"agent, session, capability, indexed, person, search) VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, ?, 1, ?, ?) "+
		"ON CONFLICT DO NOTHING", r.Host, int64(r.Seq), organisation, r.Receipt, toMicros(r.Started), r.Status, r.Agent,
		r.Session, r.Capability, r.Person, search)
	if err != nil || n == 0 {
		return err
	}
	return s.countIntent(ctx, tx, organisation, r)
}

// EndReceipt stores an outcome and counts it in its session.
func (s *Store) EndReceipt(ctx context.Context, tx *Tx, host, receipt string, e Ending) error {
	type ended struct {
		indexed int64
		session string
	}
	rows, err := queryRows(ctx, s, tx.tx, func(scan func(...any) error) (r ended, err error) {
		return r, scan(&r.indexed, &r.session)
	}, "UPDATE receipts SET outcome = ?, status = ?, decision = ?, ended = ?, search = search || ? "+
		"WHERE host = ? AND receipt = ? AND outcome = 0 RETURNING indexed, session",
		int64(e.Seq), e.Status, e.Decision, toMicros(e.Ended), e.Search, host, receipt)
	if err != nil || len(rows) == 0 || rows[0].indexed == 0 { // it is counted when the intent is
		return err
	}
	return s.countOutcome(ctx, tx, host, rows[0].session, e)
}

func (s *Store) countIntent(ctx context.Context, tx *Tx, organisation string, r Receipt) error {
	started := toMicros(r.Started)
	_, err := s.execChange(ctx, tx.tx, "INSERT INTO agent_sessions (host, session, organisation, agent, person, started, "+
		"last, calls, ended, denied, asked, failed, models, input_tokens, output_tokens, micro_usd) "+
		"VALUES (?, ?, ?, ?, ?, ?, ?, 1, 0, 0, 0, 0, 0, 0, 0, 0) ON CONFLICT (host, session) DO UPDATE SET "+
		"calls = agent_sessions.calls + 1, "+
		"last = CASE WHEN excluded.last > agent_sessions.last THEN excluded.last ELSE agent_sessions.last END, "+
		"started = CASE WHEN excluded.started > 0 AND excluded.started < agent_sessions.started THEN excluded.started "+
		"ELSE agent_sessions.started END",
		r.Host, r.Session, organisation, r.Agent, r.Person, started, started)
	return err
}

func (s *Store) countOutcome(ctx context.Context, tx *Tx, host, session string, e Ending) error {
	count := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	last := toMicros(e.Ended)
	_, err := s.execChange(ctx, tx.tx, "UPDATE agent_sessions SET ended = ended + 1, denied = denied + ?, asked = asked + ?, "+
		"failed = failed + ?, models = models + ?, input_tokens = input_tokens + ?, output_tokens = output_tokens + ?, "+
		"micro_usd = micro_usd + ?, last = CASE WHEN last < ? THEN ? ELSE last END WHERE host = ? AND session = ?",
		count(e.Denied), count(e.Asked), count(e.Failed), e.Models, e.InputTokens, e.OutputTokens, e.MicroUSD, last, last,
		host, session)
	return err
}

// An Unread is a receipt of an older schema, with the lines of its two halves.
type Unread struct {
	Receipt
	Organisation    string
	Intent, Outcome string
}

// UnreadReceipts returns receipts whose details are not stored yet, at most limit.
func (s *Store) UnreadReceipts(ctx context.Context, limit int) ([]Unread, error) {
	return queryRows(ctx, s, s.db, func(scan func(...any) error) (u Unread, err error) {
		var started int64
		err = scan(&u.Host, &u.Organisation, &u.Seq, &u.Receipt.Receipt, &started, &u.OutcomeSeq, &u.Agent, &u.Session,
			&u.Intent, &u.Outcome)
		u.Started = fromMicros(started)
		return u, err
	}, "SELECT r.host, r.organisation, r.seq, r.receipt, r.started, r.outcome, r.agent, r.session, "+
		"COALESCE(i.line, ''), COALESCE(o.line, '') FROM receipts r "+
		"LEFT JOIN entries i ON i.host = r.host AND i.seq = r.seq "+
		"LEFT JOIN entries o ON o.host = r.host AND o.seq = r.outcome "+
		"WHERE r.indexed = 0 ORDER BY r.host, r.seq LIMIT ?", limit)
}

// ReadReceipt stores the details of an unread receipt, and counts it in its session. If another server has done that, or
// the receipt has ended meanwhile, nothing changes.
func (s *Store) ReadReceipt(ctx context.Context, tx *Tx, u Unread, search string, e Ending) error {
	n, err := s.execChange(ctx, tx.tx, "UPDATE receipts SET indexed = 1, person = ?, search = ?, decision = ?, ended = ? "+
		"WHERE host = ? AND seq = ? AND outcome = ? AND indexed = 0", u.Person, search+e.Search, e.Decision,
		toMicros(e.Ended), u.Host, int64(u.Seq), int64(u.OutcomeSeq))
	if err != nil || n == 0 {
		return err
	}
	err = s.countIntent(ctx, tx, u.Organisation, u.Receipt)
	if err == nil && u.OutcomeSeq > 0 {
		err = s.countOutcome(ctx, tx, u.Host, u.Session, e)
	}
	return err
}

// A ReceiptFilter selects receipts. A zero field selects all.
type ReceiptFilter struct {
	Host, Receipt, Agent, Session, Capability, Decision, Status string
	Since, Until                                                time.Time // started then or later; started before
	// Text must be in the arguments or another text of the call, in any case. Then only the first Window receipts that the
	// other fields select are looked at, so that no search takes longer: see [Store.ReceiptsEnd].
	Text   string
	Window int
	// The last receipt of the page before: its time, host and number.
	BeforeStarted time.Time
	BeforeHost    string
	BeforeSeq     uint64
	Oldest        bool // the oldest first
	Limit         int
}

// buildQuery returns the condition and the order of a query without the text.
func (f ReceiptFilter) buildQuery(organisation string) (where, order string, args []any) {
	where, args = "r.organisation = ?", []any{organisation}
	add := func(condition string, values ...any) {
		where, args = where+" AND "+condition, append(args, values...)
	}
	host := "r.host"
	if f.Session != "" || f.Receipt != "" { // they select better: without this, SQLite may take the index of hosts
		host = "(r.host || '')"
	}
	for _, c := range []struct{ column, value string }{{host, f.Host}, {"r.receipt", f.Receipt}, {"r.agent", f.Agent},
		{"r.session", f.Session}, {"r.capability", f.Capability}, {"r.decision", f.Decision}, {"r.status", f.Status}} {
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
	sign, direction := "<", "DESC"
	if f.Oldest {
		sign, direction = ">", "ASC"
	}
	if f.BeforeHost != "" {
		add("(r.started, r.host, r.seq) "+sign+" (?, ?, ?)", toMicros(f.BeforeStarted), f.BeforeHost, int64(f.BeforeSeq))
	}
	order = " ORDER BY r.started " + direction + ", r.host " + direction + ", r.seq " + direction
	return where, order, args
}

// receiptColumns has the name of the host as a query of its own: a join would let the database begin with the ledgers.
const receiptColumns = "r.host, (SELECT l.name FROM ledgers l WHERE l.host = r.host), r.seq, r.receipt, r.started, r.outcome, r.ended, r.status, r.decision, r.agent, " +
	"r.person, r.session, r.capability"

func scanReceipt(scan func(...any) error) (r Receipt, err error) {
	var started, ended int64
	err = scan(&r.Host, &r.HostName, &r.Seq, &r.Receipt, &started, &r.OutcomeSeq, &ended, &r.Status, &r.Decision, &r.Agent,
		&r.Person, &r.Session, &r.Capability)
	r.Started, r.Ended = fromMicros(started), fromMicros(ended)
	return r, err
}

// Receipts returns receipts of an organisation, the newest first.
func (s *Store) Receipts(ctx context.Context, organisation string, f ReceiptFilter) ([]Receipt, error) {
	where, order, args := f.buildQuery(organisation)
	from := "receipts r"
	if f.Text != "" {
		from = "(SELECT * FROM receipts r WHERE " + where + order + " LIMIT ?) r"
		where, args = "r.search LIKE ? ESCAPE '!'", append(args, f.Window, "%"+escapeLike(strings.ToLower(f.Text))+"%")
	}
	return queryRows(ctx, s, s.db, scanReceipt, "SELECT "+receiptColumns+" FROM "+from+
		" WHERE "+where+order+" LIMIT ?", append(args, f.Limit)...)
}

func escapeLike(text string) string {
	return strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(text)
}

// ReceiptsEnd returns the last receipt that a search by text has looked at, and false if it has looked at all.
func (s *Store) ReceiptsEnd(ctx context.Context, organisation string, f ReceiptFilter) (r Receipt, more bool, err error) {
	where, order, args := f.buildQuery(organisation)
	all, err := queryRows(ctx, s, s.db, func(scan func(...any) error) (r Receipt, err error) {
		var started int64
		err = scan(&started, &r.Host, &r.Seq)
		r.Started = fromMicros(started)
		return r, err
	}, "SELECT r.started, r.host, r.seq FROM receipts r WHERE "+where+order+" LIMIT 2 OFFSET ?",
		append(args, f.Window-1)...)
	if err != nil || len(all) < 2 {
		return r, false, err
	}
	return all[0], true, nil
}

// ReceiptAt returns the receipt of an organisation whose intent has that number.
func (s *Store) ReceiptAt(ctx context.Context, organisation, host string, seq uint64) (Receipt, error) {
	return oneRow(ctx, s, s.db, "receipt", scanReceipt, "SELECT "+receiptColumns+
		" FROM receipts r WHERE r.organisation = ? AND r.host = ? AND r.seq = ?",
		organisation, host, int64(seq))
}

// EntriesAt returns the entries of a ledger with these numbers, in their order. It leaves out those that do not exist.
func (s *Store) EntriesAt(ctx context.Context, host string, seqs ...uint64) (all []Entry, err error) {
	const step = 500 // parameters of a statement
	for len(seqs) > 0 {
		n := min(step, len(seqs))
		args := []any{host}
		for _, seq := range seqs[:n] {
			args = append(args, int64(seq))
		}
		some, err := queryRows(ctx, s, s.db, scanEntry, "SELECT seq, segment, kind, line FROM entries WHERE host = ? AND seq IN (?"+
			strings.Repeat(", ?", n-1)+") ORDER BY seq", args...)
		if err != nil {
			return nil, err
		}
		all, seqs = append(all, some...), seqs[n:]
	}
	return all, nil
}

// EntriesOf returns the numbers of the first size entries that are of a kind, in their order.
func (s *Store) EntriesOf(ctx context.Context, host, kind string, size uint64) ([]uint64, error) {
	return queryRows(ctx, s, s.db, scanNumber, "SELECT seq FROM entries WHERE host = ? AND kind = ? AND seq <= ? ORDER BY seq",
		host, kind, int64(size))
}

func scanNumber(scan func(...any) error) (n uint64, err error) { return n, scan(&n) }

// AddPlan stores the entry of a plan.
func (s *Store) AddPlan(ctx context.Context, tx *Tx, host, digest string, seq uint64) error {
	_, err := s.execChange(ctx, tx.tx, "INSERT INTO plans (host, digest, seq) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
		host, digest, int64(seq))
	return err
}

// PlanAt returns the number of the entry with a plan. Entries of an older schema are searched.
func (s *Store) PlanAt(ctx context.Context, host, digest string, before uint64) (uint64, error) {
	seqs, err := queryRows(ctx, s, s.db, scanNumber, "SELECT seq FROM plans WHERE host = ? AND digest = ?", host, digest)
	if err == nil && len(seqs) == 0 {
		seqs, err = queryRows(ctx, s, s.db, scanNumber, "SELECT seq FROM entries WHERE host = ? AND kind = 'plan' AND seq < ? "+
			"AND line LIKE ? ESCAPE '!' ORDER BY seq DESC LIMIT 1", host, int64(before),
			`%"digest":"`+escapeLike(digest)+`"%`)
	}
	if err == nil && len(seqs) == 0 {
		err = notFound("plan")
	}
	if err != nil {
		return 0, err
	}
	return seqs[0], nil
}

// AddSubtree stores the root of the full subtree of 256 entries with that number. The same one again changes nothing.
func (s *Store) AddSubtree(ctx context.Context, tx *Tx, host string, number uint64, hash string) error {
	_, err := s.execChange(ctx, tx.tx, "INSERT INTO subtrees (host, number, hash) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
		host, int64(number), hash)
	return err
}

// Subtrees returns the roots of the first full subtrees of a ledger by number.
func (s *Store) Subtrees(ctx context.Context, host string, count uint64) (map[uint64]string, error) {
	type subtree struct {
		number uint64
		hash   string
	}
	rows, err := queryRows(ctx, s, s.db, func(scan func(...any) error) (t subtree, err error) {
		return t, scan(&t.number, &t.hash)
	}, "SELECT number, hash FROM subtrees WHERE host = ? AND number < ?", host, int64(count))
	all := map[uint64]string{}
	for _, t := range rows {
		all[t.number] = t.hash
	}
	return all, err
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
