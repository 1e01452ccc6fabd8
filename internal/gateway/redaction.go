package gateway

import (
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/redact"
	"bailey/pack"
)

// Redaction holds the token map of each session, in memory alone. It is the gate's Redactor.
type Redaction struct {
	// Tell, when set, learns the category of each token that is made in a tool's output.
	Tell func(category string)

	inForce atomic.Pointer[redact.Rules] // nil: what is built in
	mu      sync.Mutex
	tables  map[bailey.SessionID]*redact.Table // guarded by mu
}

// NewRedaction returns one without sessions.
func NewRedaction() *Redaction {
	return &Redaction{tables: map[bailey.SessionID]*redact.Table{}}
}

// builtInRules are all that package redact has. Compile has nothing to complain of in the zero Config; if it
// had, a gateway that hides less than it says must not go on.
func builtInRules() *redact.Rules {
	rules, err := redact.Compile(redact.Config{})
	if err != nil {
		panic(err)
	}
	return rules
}

func (r *Redaction) rules() *redact.Rules {
	if own := r.inForce.Load(); own != nil {
		return own
	}
	return builtInRules()
}

// newTable returns an empty table, for a new session or for a text of its own, under the rules that hold now.
func (r *Redaction) newTable() *redact.Table { return r.rules().NewTable() }

// Use puts c into force for the sessions that begin from now on. Those that are open keep what they began with,
// and so does everything when c does not compile.
func (r *Redaction) Use(c redact.Config) error {
	rules, err := redact.Compile(c)
	if err == nil {
		r.inForce.Store(rules)
	}
	return err
}

func (r *Redaction) table(id bailey.SessionID) *redact.Table {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.tables[id]
	if !ok {
		t = r.newTable()
		r.tables[id] = t
	}
	return t
}

// Learn makes leased values secrets of the session.
func (r *Redaction) Learn(id bailey.SessionID, secrets []bailey.Secret) {
	for _, s := range secrets {
		r.table(id).Learn("LEASE", s.Reveal())
	}
}

// Value returns a redacted deep copy of decoded JSON.
func (r *Redaction) Value(id bailey.SessionID, v any) any {
	out, _ := r.table(id).JSON(v)
	return out
}

// Input is Value for what a client sent: what is secret in it is hidden from now on wherever it stands.
func (r *Redaction) Input(id bailey.SessionID, v any) any { return r.table(id).Input(v) }

// Text returns s redacted.
func (r *Redaction) Text(id bailey.SessionID, s string) string {
	return hide(r.table(id), s)
}

// Writer redacts on the way to w.
func (r *Redaction) Writer(id bailey.SessionID, w io.Writer) gate.RedactingWriter {
	out := r.table(id).Writer(w)
	if r.Tell != nil {
		out.Tell(func(f redact.Finding) { r.Tell(f.Category) })
	}
	return out
}

// Again redacts what a hook made of redacted output. The session's tokens in it stay what they are.
func (r *Redaction) Again(id bailey.SessionID, seen []byte) []byte {
	return []byte(r.table(id).Again(string(seen)))
}

// Restore gives the tokens in an input back what they stand for: addresses where the schema says that a value is a
// place, secrets where it says acceptsSecret. It names the categories of the secrets, sorted: policy has to permit them.
func (r *Redaction) Restore(id bailey.SessionID, m *pack.Capability, input map[string]any) (map[string]any, []string, error) {
	t := r.table(id)
	var secrets []string
	out := m.Rewrite(input, func(s string, in pack.Text) string {
		s, given := t.Give(s, redact.Grant{Type: in.Format, Secrets: in.AcceptsSecret})
		for _, c := range given {
			if !redact.Pseudonym(c) && !slices.Contains(secrets, c) {
				secrets = append(secrets, c)
			}
		}
		return s
	})
	slices.Sort(secrets)
	return out, secrets, nil
}

// End forgets a session's map.
func (r *Redaction) End(id bailey.SessionID) {
	r.mu.Lock()
	delete(r.tables, id)
	r.mu.Unlock()
}
