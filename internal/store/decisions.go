package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"time"

	"bailey"
)

// A Question is one that a gateway asks.
type Question struct {
	ID      string          `json:"id"`
	Host    string          `json:"host"`
	Asked   time.Time       `json:"asked"`
	Expires time.Time       `json:"expires"`
	State   string          `json:"state" enum:"open,granted,denied,expired"`
	Reason  string          `json:"reason,omitempty"` // why it is no longer open
	Decided time.Time       `json:"decided,omitzero"`
	Body    json.RawMessage `json:"-"` // as the gateway reported it
	Arrived time.Time       `json:"-"` // by the server's clock
	// Agent and Capability are those of the body, for filters.
	Agent      string `json:"-"`
	Capability string `json:"-"`
}

// States of a question. Expired ones are stored as open.
const (
	QuestionOpen    = "open"
	QuestionGranted = "granted"
	QuestionDenied  = "denied"
	QuestionExpired = "expired"
)

const questionColumns = "id, host, body, asked, expires, state, reason, decided, arrived, agent, capability"

func (s *Store) scanQuestion(scan func(...any) error) (q Question, err error) {
	var asked, expires, decided, arrived int64
	var body string
	err = scan(&q.ID, &q.Host, &body, &asked, &expires, &q.State, &q.Reason, &decided, &arrived, &q.Agent, &q.Capability)
	q.Asked, q.Expires, q.Decided, q.Body = fromMicros(asked), fromMicros(expires), fromMicros(decided), []byte(body)
	q.Arrived = fromMicros(arrived)
	if q.State == QuestionOpen && !s.now().Before(q.Expires) {
		q.State = QuestionExpired
	}
	return q, err
}

// mostQuestions limits the questions of a list.
const mostQuestions = 1000

// mostOpen limits the open questions of a host.
const mostOpen = 300

// A QuestionFilter selects questions. A zero field selects all.
type QuestionFilter struct {
	State, Host, Agent, Capability string
	// The last question of the page before: when it arrived, and its id.
	BeforeArrived time.Time
	BeforeID      string
	Limit         int // mostQuestions if it is 0 or higher than that
}

// Questions lists questions of an organisation, those that arrived last first. Open ones exclude those that have expired.
func (s *Store) Questions(ctx context.Context, organisation string, f QuestionFilter) ([]Question, error) {
	where, args := "organisation = ?", []any{organisation}
	add := func(condition string, values ...any) {
		where, args = where+" AND "+condition, append(args, values...)
	}
	switch f.State {
	case "":
	case QuestionOpen:
		add("state = 'open' AND expires > ?", toMicros(s.now()))
	case QuestionExpired:
		add("state = 'open' AND expires <= ?", toMicros(s.now()))
	default:
		add("state = ?", f.State)
	}
	for _, c := range []struct{ column, value string }{{"host", f.Host}, {"agent", f.Agent}, {"capability", f.Capability}} {
		if c.value != "" {
			add(c.column+" = ?", c.value)
		}
	}
	if f.BeforeID != "" {
		add("(arrived, id) < (?, ?)", toMicros(f.BeforeArrived), f.BeforeID)
	}
	limit := f.Limit
	if limit <= 0 || limit > mostQuestions {
		limit = mostQuestions
	}
	return queryRows(ctx, s, s.db, s.scanQuestion, "SELECT "+questionColumns+" FROM questions WHERE "+where+
		" ORDER BY arrived DESC, id DESC LIMIT ?", append(args, limit)...)
}

// CountOpen returns how many questions of an organisation are open.
func (s *Store) CountOpen(ctx context.Context, organisation string) (int, error) {
	return oneRow(ctx, s, s.db, "question", func(scan func(...any) error) (n int, err error) {
		err = scan(&n)
		return n, err
	}, "SELECT count(*) FROM questions WHERE organisation = ? AND state = 'open' AND expires > ?", organisation,
		toMicros(s.now()))
}

// QuestionByID finds a question of an organisation.
func (s *Store) QuestionByID(ctx context.Context, organisation, id string) (Question, error) {
	return oneRow(ctx, s, s.db, "question", s.scanQuestion,
		"SELECT "+questionColumns+" FROM questions WHERE organisation = ? AND id = ?", organisation, id)
}

// AskQuestion stores a question of a host. A host that tells it again changes nothing. A question of another host with
// the same id is a Conflict, and one more than a host may have open is Invalid.
func (s *Store) AskQuestion(ctx context.Context, tx *Tx, host Host, q Question) error {
	found, err := queryRows(ctx, s, tx.tx, s.scanQuestion,
		"SELECT "+questionColumns+" FROM questions WHERE organisation = ? AND id = ?", host.Organisation, q.ID)
	if err != nil || len(found) > 0 && found[0].Host == host.ID {
		return err
	}
	if len(found) > 0 {
		return bailey.Conflict.Errorf("", "another host has asked a question %.40q", q.ID)
	}
	now := toMicros(s.now())
	open, err := oneRow(ctx, s, tx.tx, "host", func(scan func(...any) error) (n int, err error) {
		err = scan(&n)
		return n, err
	},
		"SELECT count(*) FROM questions WHERE organisation = ? AND host = ? AND state = 'open' AND expires > ?",
		host.Organisation, host.ID, now)
	if err != nil {
		return err
	}
	if open >= mostOpen {
		return bailey.Invalid.Errorf("answer some of them", "the host has %d open questions", open)
	}
	_, err = s.execChange(ctx, tx.tx, "INSERT INTO questions (organisation, "+questionColumns+
		") VALUES (?, ?, ?, ?, ?, ?, 'open', '', 0, ?, ?, ?)",
		host.Organisation, q.ID, host.ID, string(q.Body), toMicros(q.Asked), toMicros(q.Expires), now, q.Agent, q.Capability)
	return err
}

// DecideQuestion records how a question of a host ended. A granted one can be denied until its call has run.
func (s *Store) DecideQuestion(ctx context.Context, tx *Tx, host, id, state, reason string) error {
	return s.changeOne(ctx, tx.tx, "question",
		"UPDATE questions SET state = ?, reason = ?, decided = ? WHERE id = ? AND host = ?",
		state, reason, toMicros(s.now()), id, host)
}

// A Stop stops an agent or everything, on a host or on all of an organisation.
type Stop struct {
	ID      string    `json:"id"`
	Host    string    `json:"host,omitempty"`
	Agent   string    `json:"agent,omitempty"`
	Reason  string    `json:"reason"`
	Person  string    `json:"person"` // who stopped it
	Created time.Time `json:"created"`
	Ended   time.Time `json:"ended,omitzero"`
	EndedBy string    `json:"endedBy,omitempty"`
}

const stopColumns = "id, host, agent, reason, person, created, ended, ended_by"

func scanStop(scan func(...any) error) (p Stop, err error) {
	var created, ended int64
	err = scan(&p.ID, &p.Host, &p.Agent, &p.Reason, &p.Person, &created, &ended, &p.EndedBy)
	p.Created, p.Ended = fromMicros(created), fromMicros(ended)
	return p, err
}

// Stops lists what is stopped, and what was, the newest first.
func (s *Store) Stops(ctx context.Context, organisation string) ([]Stop, error) {
	return queryRows(ctx, s, s.db, scanStop,
		"SELECT "+stopColumns+" FROM stops WHERE organisation = ? ORDER BY created DESC, id LIMIT 1000", organisation)
}

// AddStop stops something. A host must be one of the organisation.
func (s *Store) AddStop(ctx context.Context, organisation string, p Stop) (Stop, error) {
	p.ID, p.Created = newID("k-"), s.now()
	err := s.inTransaction(ctx, func(tx *sql.Tx) error {
		if p.Host != "" {
			if _, err := oneRow(ctx, s, tx, "host", scanHost,
				"SELECT "+hostColumns+" FROM hosts WHERE organisation = ? AND id = ?", organisation, p.Host); err != nil {
				return err
			}
		}
		if err := s.raiseRevision(ctx, tx, organisation); err != nil {
			return err
		}
		_, err := s.execChange(ctx, tx, "INSERT INTO stops (organisation, "+stopColumns+
			") VALUES (?, ?, ?, ?, ?, ?, ?, 0, '')",
			organisation, p.ID, p.Host, p.Agent, p.Reason, p.Person, toMicros(p.Created))
		return err
	})
	return p, err
}

// EndStop resumes what a stop has stopped.
func (s *Store) EndStop(ctx context.Context, organisation, id, person string) error {
	return s.inTransaction(ctx, func(tx *sql.Tx) error {
		if err := s.raiseRevision(ctx, tx, organisation); err != nil {
			return err
		}
		return s.changeOne(ctx, tx, "stop",
			"UPDATE stops SET ended = ?, ended_by = ? WHERE organisation = ? AND id = ? AND ended = 0",
			toMicros(s.now()), person, organisation, id)
	})
}

// raiseRevision raises the number of the orders. It is a time, so that it also grows if the database was restored from a
// backup.
func (s *Store) raiseRevision(ctx context.Context, tx *sql.Tx, organisation string) error {
	now := toMicros(s.now())
	n, err := s.execChange(ctx, tx,
		"UPDATE revisions SET revision = CASE WHEN revision >= ? THEN revision + 1 ELSE ? END WHERE organisation = ?",
		now, now, organisation)
	if err == nil && n == 0 {
		_, err = s.execChange(ctx, tx, "INSERT INTO revisions (organisation, revision) VALUES (?, ?)", organisation, now)
	}
	return err
}

// StopsOf returns what is stopped on a host, the oldest first, and the revision.
func (s *Store) StopsOf(ctx context.Context, host Host) (revision uint64, stops []Stop, err error) {
	err = s.inTransaction(ctx, func(tx *sql.Tx) error {
		found, err := queryRows(ctx, s, tx, func(scan func(...any) error) (n int64, err error) { return n, scan(&n) },
			"SELECT revision FROM revisions WHERE organisation = ?", host.Organisation)
		if err != nil || len(found) == 0 {
			return err
		}
		revision = uint64(found[0])
		stops, err = queryRows(ctx, s, tx, scanStop, "SELECT "+stopColumns+
			" FROM stops WHERE organisation = ? AND ended = 0 AND (host = '' OR host = ?) ORDER BY created, id",
			host.Organisation, host.ID)
		return err
	})
	return revision, stops, err
}

// A Bundle is a signed policy.
type Bundle struct {
	Serial  uint64          `json:"serial"`
	Hosts   []string        `json:"hosts"` // empty: all gateways
	Person  string          `json:"person"`
	Created time.Time       `json:"created"`
	Body    json.RawMessage `json:"-"` // as gateways get it
}

func scanBundle(scan func(...any) error) (b Bundle, err error) {
	var created, serial int64
	var body, hosts string
	if err := scan(&serial, &body, &hosts, &b.Person, &created); err != nil {
		return b, err
	}
	b.Serial, b.Created, b.Body = uint64(serial), fromMicros(created), []byte(body)
	return b, json.Unmarshal([]byte(hosts), &b.Hosts)
}

const bundleColumns = "serial, body, hosts, person, created"

// AddBundle stores a bundle. Its serial number must be higher than all before it.
func (s *Store) AddBundle(ctx context.Context, organisation string, b Bundle) (Bundle, error) {
	b.Created = s.now()
	err := s.inTransaction(ctx, func(tx *sql.Tx) error {
		newer, err := queryRows(ctx, s, tx, scanBundle, "SELECT "+bundleColumns+
			" FROM bundles WHERE organisation = ? AND serial >= ? ORDER BY serial DESC LIMIT 1", organisation, int64(b.Serial))
		if err != nil {
			return err
		}
		if len(newer) > 0 {
			return bailey.Conflict.Errorf("sign it with a higher serial number",
				"there is a bundle with the serial number %d", newer[0].Serial)
		}
		known, err := queryRows(ctx, s, tx, scanHost, "SELECT "+hostColumns+" FROM hosts WHERE organisation = ?", organisation)
		if err != nil {
			return err
		}
		for _, id := range b.Hosts {
			if !slices.ContainsFunc(known, func(h Host) bool { return h.ID == id && h.Kind == Gateway }) {
				return notFound("gateway")
			}
		}
		hosts, err := json.Marshal(slices.Concat([]string{}, b.Hosts))
		if err != nil {
			return err
		}
		_, err = s.execChange(ctx, tx, "INSERT INTO bundles (organisation, "+bundleColumns+") VALUES (?, ?, ?, ?, ?, ?)",
			organisation, int64(b.Serial), string(b.Body), string(hosts), b.Person, toMicros(b.Created))
		return err
	})
	return b, err
}

// Bundles lists the bundles of an organisation, the newest first.
func (s *Store) Bundles(ctx context.Context, organisation string) ([]Bundle, error) {
	return queryRows(ctx, s, s.db, scanBundle,
		"SELECT "+bundleColumns+" FROM bundles WHERE organisation = ? ORDER BY serial DESC LIMIT 100", organisation)
}

// BundleFor returns the newest bundle that is for a host. If there is none, the error is NotFound.
func (s *Store) BundleFor(ctx context.Context, host Host) (Bundle, error) {
	all, err := s.Bundles(ctx, host.Organisation)
	if err != nil {
		return Bundle{}, err
	}
	for _, b := range all {
		if len(b.Hosts) == 0 || slices.Contains(b.Hosts, host.ID) {
			return b, nil
		}
	}
	return Bundle{}, notFound("bundle")
}

// A BundleState is what a gateway said about the last bundle that it was offered.
type BundleState struct {
	Host    string
	Body    json.RawMessage
	Changed time.Time
}

// SetBundleState keeps it.
func (s *Store) SetBundleState(ctx context.Context, tx *Tx, host string, body []byte) error {
	now := toMicros(s.now())
	n, err := s.execChange(ctx, tx.tx, "UPDATE bundle_states SET body = ?, changed = ? WHERE host = ?", string(body), now, host)
	if err == nil && n == 0 {
		_, err = s.execChange(ctx, tx.tx, "INSERT INTO bundle_states (host, body, changed) VALUES (?, ?, ?)",
			host, string(body), now)
	}
	return err
}

// BundleStates lists the states of an organisation's gateways.
func (s *Store) BundleStates(ctx context.Context, organisation string) ([]BundleState, error) {
	return queryRows(ctx, s, s.db, func(scan func(...any) error) (b BundleState, err error) {
		var changed int64
		var body string
		err = scan(&b.Host, &body, &changed)
		b.Body, b.Changed = []byte(body), fromMicros(changed)
		return b, err
	}, "SELECT b.host, b.body, b.changed FROM bundle_states b JOIN hosts h ON h.id = b.host WHERE h.organisation = ? "+
		"ORDER BY h.name", organisation)
}

// SetPolicyState stores which rules a gateway uses.
func (s *Store) SetPolicyState(ctx context.Context, tx *Tx, host string, body []byte) error {
	_, err := s.execChange(ctx, tx.tx, "INSERT INTO policy_states (host, body, changed) VALUES (?, ?, ?) "+
		"ON CONFLICT (host) DO UPDATE SET body = excluded.body, changed = excluded.changed", host, string(body), toMicros(s.now()))
	return err
}

// PolicyStates lists the rules of an organisation's gateways, in the form of bundle states.
func (s *Store) PolicyStates(ctx context.Context, organisation string) ([]BundleState, error) {
	return queryRows(ctx, s, s.db, func(scan func(...any) error) (b BundleState, err error) {
		var changed int64
		var body string
		err = scan(&b.Host, &body, &changed)
		b.Body, b.Changed = []byte(body), fromMicros(changed)
		return b, err
	}, "SELECT p.host, p.body, p.changed FROM policy_states p JOIN hosts h ON h.id = p.host WHERE h.organisation = ? "+
		"ORDER BY h.name", organisation)
}
