package gateway

import (
	"io"
	"sync"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/redact"
	"bailey/pack"
)

// Redaction holds the token map of each session, in memory alone. It is the gate's Redactor.
type Redaction struct {
	// Tell, when set, learns the category of each token that is made in a tool's output.
	Tell func(category string)

	mu     sync.Mutex
	tables map[bailey.SessionID]*redact.Table
}

// NewRedaction returns one without sessions.
func NewRedaction() *Redaction {
	return &Redaction{tables: map[bailey.SessionID]*redact.Table{}}
}

func (r *Redaction) table(id bailey.SessionID) *redact.Table {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.tables[id]
	if !ok {
		t = redact.NewTable()
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

// Writer redacts on the way to w.
func (r *Redaction) Writer(id bailey.SessionID, w io.Writer) gate.RedactingWriter {
	out := r.table(id).Writer(w)
	if r.Tell != nil {
		out.Tell(func(f redact.Finding) { r.Tell(f.Category) })
	}
	return out
}

// Again redacts what a hook made of redacted output. Tokens in it are the session's own: they are
// taken back and made anew, so that each stays the token it was.
func (r *Redaction) Again(id bailey.SessionID, seen []byte) []byte {
	t := r.table(id)
	out, _ := t.Text(t.Restore(string(seen)))
	return []byte(out)
}

// Restore gives nothing back: this version makes no pseudonyms, and a secret's token stays a token.
func (r *Redaction) Restore(_ bailey.SessionID, _ *pack.Capability, input map[string]any) (map[string]any, []string, error) {
	return input, nil, nil
}

// End forgets a session's map.
func (r *Redaction) End(id bailey.SessionID) {
	r.mu.Lock()
	delete(r.tables, id)
	r.mu.Unlock()
}
