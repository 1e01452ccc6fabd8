package gateway

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/localapi/apitype"
	"bailey/internal/redact"
	"bailey/pack"
)

// Redaction holds the token map of each session, in memory only. It is the Redactor of the gate.
type Redaction struct {
	// Tell, if set, is called with the category of each token that is made in a tool's output.
	Tell func(category string)

	inForce atomic.Pointer[redact.Rules]
	mu      sync.Mutex
	tables  map[bailey.SessionID]*redact.Table // guarded by mu
}

// NewRedaction returns a Redaction without token maps that uses the built-in rules. Compile must not fail for the zero
// Config; if it did, a gateway that hides less than it claims must not continue.
func NewRedaction() *Redaction {
	rules, err := redact.Compile(redact.Config{})
	if err != nil {
		panic(err)
	}
	r := &Redaction{tables: map[bailey.SessionID]*redact.Table{}}
	r.inForce.Store(rules)
	return r
}

// newTable returns an empty table with the rules in force, for a new session or a separate text. Open sessions keep the
// rules with which they began.
func (r *Redaction) newTable() *redact.Table { return r.inForce.Load().NewTable() }

func (r *Redaction) sessionTable(id bailey.SessionID) *redact.Table {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.tables[id]
	if !ok {
		t = r.newTable()
		r.tables[id] = t
	}
	return t
}

// Table returns the token map of a session, for texts of the session that are edited in place.
func (r *Redaction) Table(id bailey.SessionID) *redact.Table { return r.sessionTable(id) }

// Learn adds leased values to the secrets of the session.
func (r *Redaction) Learn(id bailey.SessionID, secrets []bailey.Secret) {
	for _, s := range secrets {
		r.sessionTable(id).Learn("LEASE", s.Reveal())
	}
}

// Value returns a redacted deep copy of decoded JSON.
func (r *Redaction) Value(id bailey.SessionID, v any) any {
	out, _ := r.sessionTable(id).JSON(v)
	return out
}

// ForPerson is Value for a question to a person, who needs to see addresses.
func (r *Redaction) ForPerson(id bailey.SessionID, v any) any { return r.sessionTable(id).ForPerson(v) }

// Input is Value for data from a client: a secret in it is redacted from then on, wherever it occurs.
func (r *Redaction) Input(id bailey.SessionID, v any) any { return r.sessionTable(id).Input(v) }

// Text returns s redacted.
func (r *Redaction) Text(id bailey.SessionID, s string) string {
	return redactText(r.sessionTable(id), s)
}

// Writer returns a writer that redacts before it writes to w.
func (r *Redaction) Writer(id bailey.SessionID, w io.Writer) gate.RedactingWriter {
	out := r.sessionTable(id).Writer(w)
	if r.Tell != nil {
		out.Tell(func(f redact.Finding) { r.Tell(f.Category) })
	}
	return out
}

// Again redacts output that a hook derived from redacted output. The session's tokens in it stay unchanged.
func (r *Redaction) Again(id bailey.SessionID, seen []byte) []byte {
	return []byte(r.sessionTable(id).Again(string(seen)))
}

// Restore replaces the tokens in an input by their original texts: addresses if the schema says that the value is a
// location, secrets if it says acceptsSecret. It returns the sorted categories of the secrets, which policy must
// permit.
func (r *Redaction) Restore(id bailey.SessionID, m *pack.Capability,
	input map[string]any) (map[string]any, []string, error) {
	t := r.sessionTable(id)
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

// Limits of the kept token maps. Beyond them, the map with the oldest last use is removed.
const (
	keptFor      = 8 * time.Hour // since the last use
	maxKept      = 1024          // sessions
	maxKeptBytes = 64 << 20      // of redacted texts; a table stores each about twice
)

// Kept holds the token maps of `bailey redact`, in memory only, so that a text can be restored later. They are separate
// from the maps of calls: the session id of a call opens none of them. The session id is the only key to a map and must
// stay secret, so no function lists the ids: with the id, an attacker could confirm a guessed text by its token. While
// a map is kept, the gateway is not idle. Kept is safe for concurrent use.
type Kept struct {
	redaction *Redaction
	now       func() time.Time

	mu   sync.Mutex // guards maps; each table has its own lock
	maps map[bailey.SessionID]keptMap
}

type keptMap struct {
	table *redact.Table
	used  time.Time
}

// NewKept returns an empty Kept. New maps use the rules of r.
func NewKept(r *Redaction) *Kept {
	return &Kept{redaction: r, now: time.Now, maps: map[bailey.SessionID]keptMap{}}
}

// openTable returns the map of a session. If id is empty, it returns a new session and map that are not kept yet.
func (k *Kept) openTable(id bailey.SessionID) (bailey.SessionID, *redact.Table, error) {
	if id == "" {
		return bailey.NewSessionID(), k.redaction.newTable(), nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dropExpired()
	m, ok := k.maps[id]
	if !ok {
		return "", nil, noSession()
	}
	m.used = k.now()
	k.maps[id] = m
	return id, m.table, nil
}

// storeTable stores a session's map for keptFor and reports whether it did. A map without texts is stored only if needed is
// set, because it can still restore escaped tokens.
func (k *Kept) storeTable(id bailey.SessionID, t *redact.Table, needed bool) bool {
	if texts, _ := t.Size(); texts == 0 && !needed {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.maps[id] = keptMap{t, k.now()}
	k.dropExpired()
	k.evictExcess()
	return true
}

func (k *Kept) dropTable(id bailey.SessionID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.maps, id)
}

// dropExpired removes expired maps. The caller must hold k.mu.
func (k *Kept) dropExpired() {
	maps.DeleteFunc(k.maps, func(_ bailey.SessionID, m keptMap) bool { return k.now().Sub(m.used) >= keptFor })
}

// evictExcess removes the maps that exceed the limits. The caller must hold k.mu.
func (k *Kept) evictExcess() {
	ids := slices.SortedFunc(maps.Keys(k.maps), func(a, b bailey.SessionID) int {
		return cmp.Or(k.maps[b].used.Compare(k.maps[a].used), cmp.Compare(b, a))
	})
	bytes := 0
	for i, id := range ids {
		_, n := k.maps[id].table.Size()
		if bytes += n; i > 0 && (i >= maxKept || bytes > maxKeptBytes) {
			delete(k.maps, id)
		}
	}
}

// Count returns the number of kept maps and when the last of them expires. Without maps that is the zero time.
func (k *Kept) Count() (n int, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dropExpired()
	for _, m := range k.maps {
		if end := m.used.Add(keptFor).UTC(); end.After(until) {
			until = end
		}
	}
	return len(k.maps), until
}

// Find returns information about a session. It does not count as a use.
func (k *Kept) Find(id bailey.SessionID) (apitype.KeptSession, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dropExpired()
	m, ok := k.maps[id]
	if !ok {
		return apitype.KeptSession{}, noSession()
	}
	texts, _ := m.table.Size()
	return apitype.KeptSession{Texts: texts, Used: m.used.UTC(), Until: m.used.Add(keptFor).UTC()}, nil
}

// noSession does not repeat the id, because the id is a secret.
func noSession() error {
	return bailey.NotFound.New("there is no such redaction session",
		"redact the text again, and ask again with the new output; a session ends eight hours after its last use, with the gateway, or when newer ones need its space")
}

// Log returns a handler that redacts each record with the current rules before it reaches h. Each record has its own
// table, so no content stays in memory and tokens of different lines are unrelated.
func (r *Redaction) Log(h slog.Handler) slog.Handler { return redactingHandler{h, r} }

// redactingHandler is the handler that Log returns.
type redactingHandler struct {
	slog.Handler
	redaction *Redaction
}

// Handle writes a record. If it cannot be redacted, it is logged without its text: it may follow a panic in a call, and
// a second panic would end all other calls.
func (v redactingHandler) Handle(ctx context.Context, rec slog.Record) error {
	out := slog.NewRecord(rec.Time, rec.Level, "a record could not be redacted and is left out", rec.PC)
	func() {
		defer func() { recover() }()
		t := v.redaction.newTable()
		hidden := slog.NewRecord(rec.Time, rec.Level, redactText(t, rec.Message), rec.PC)
		rec.Attrs(func(a slog.Attr) bool { hidden.AddAttrs(hideAttr(t, a)); return true })
		out = hidden
	}()
	return v.Handler.Handle(ctx, out)
}

func (v redactingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	t, hidden := v.redaction.newTable(), make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		hidden[i] = hideAttr(t, a)
	}
	return redactingHandler{v.Handler.WithAttrs(hidden), v.redaction}
}

func (v redactingHandler) WithGroup(name string) slog.Handler {
	return redactingHandler{v.Handler.WithGroup(name), v.redaction}
}

func redactText(t *redact.Table, s string) string {
	s, _ = t.Text(s)
	return s
}

// hideAttr redacts the value of an attribute. The key is a constant of this program.
func hideAttr(t *redact.Table, a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindGroup:
		var hidden []slog.Attr
		for _, inner := range v.Group() {
			hidden = append(hidden, hideAttr(t, inner))
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(hidden...)}
	case slog.KindString, slog.KindAny:
		text := v.String()
		if b, ok := v.Any().([]byte); ok { // as a handler would write it
			text = string(b)
		}
		return slog.String(a.Key, redactText(t, text))
	}
	return slog.Attr{Key: a.Key, Value: v}
}

// Lines returns a writer that redacts each text written to it, as Log redacts a record.
func (r *Redaction) Lines(w io.Writer) io.Writer { return redactingWriter{w, r} }

type redactingWriter struct {
	w         io.Writer
	redaction *Redaction
}

func (v redactingWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(v.w, redactText(v.redaction.newTable(), string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}
