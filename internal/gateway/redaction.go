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

// Redaction holds the token map of each session, in memory only. It is the Redactor of the gate.
type Redaction struct {
	// Tell, if set, is called with the category of each token that is made in a tool's output.
	Tell func(category string)

	inForce atomic.Pointer[redact.Rules] // nil: the built-in rules
	mu      sync.Mutex
	tables  map[bailey.SessionID]*redact.Table // guarded by mu
}

func NewRedaction() *Redaction {
	return &Redaction{tables: map[bailey.SessionID]*redact.Table{}}
}

// builtInRules returns the rules of package redact. Compile must not fail for the zero Config; if it did, a gateway
// that hides less than it claims must not continue.
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

// newTable returns an empty table with the current rules, for a new session or a separate text.
func (r *Redaction) newTable() *redact.Table { return r.rules().NewTable() }

// Use applies c to sessions that begin from now on. Open sessions keep their rules. If c does not compile, nothing
// changes.
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

// Learn adds leased values to the secrets of the session.
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

// Input is Value for data from a client: a secret in it is redacted from then on, wherever it occurs.
func (r *Redaction) Input(id bailey.SessionID, v any) any { return r.table(id).Input(v) }

// Text returns s redacted.
func (r *Redaction) Text(id bailey.SessionID, s string) string {
	return hide(r.table(id), s)
}

// Writer returns a writer that redacts before it writes to w.
func (r *Redaction) Writer(id bailey.SessionID, w io.Writer) gate.RedactingWriter {
	out := r.table(id).Writer(w)
	if r.Tell != nil {
		out.Tell(func(f redact.Finding) { r.Tell(f.Category) })
	}
	return out
}

// Again redacts output that a hook derived from redacted output. The session's tokens in it stay unchanged.
func (r *Redaction) Again(id bailey.SessionID, seen []byte) []byte {
	return []byte(r.table(id).Again(string(seen)))
}

// Restore replaces the tokens in an input by their original texts: addresses if the schema says that the value is a
// location, secrets if it says acceptsSecret. It returns the sorted categories of the secrets, which policy must
// permit.
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

// End removes the token map of a session.
func (r *Redaction) End(id bailey.SessionID) {
	r.mu.Lock()
	delete(r.tables, id)
	r.mu.Unlock()
}
