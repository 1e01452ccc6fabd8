package gateway

import (
	"context"
	"io"
	"log/slog"

	"bailey/internal/redact"
)

// Log returns a handler that redacts each record with the current rules before it reaches h. Each record has its own
// table, so no content stays in memory and tokens of different lines are unrelated.
func (r *Redaction) Log(h slog.Handler) slog.Handler { return veil{h, r} }

// veil is the handler that Log returns.
type veil struct {
	slog.Handler
	redaction *Redaction
}

// Handle writes a record. If it cannot be redacted, it is logged without its text: it may follow a panic in a call, and
// a second panic would end all other calls.
func (v veil) Handle(ctx context.Context, rec slog.Record) error {
	out := slog.NewRecord(rec.Time, rec.Level, "a record could not be redacted and is left out", rec.PC)
	func() {
		defer func() { recover() }()
		t := v.redaction.newTable()
		hidden := slog.NewRecord(rec.Time, rec.Level, hide(t, rec.Message), rec.PC)
		rec.Attrs(func(a slog.Attr) bool { hidden.AddAttrs(hideAttr(t, a)); return true })
		out = hidden
	}()
	return v.Handler.Handle(ctx, out)
}

func (v veil) WithAttrs(attrs []slog.Attr) slog.Handler {
	t, hidden := v.redaction.newTable(), make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		hidden[i] = hideAttr(t, a)
	}
	return veil{v.Handler.WithAttrs(hidden), v.redaction}
}

func (v veil) WithGroup(name string) slog.Handler {
	return veil{v.Handler.WithGroup(name), v.redaction}
}

func hide(t *redact.Table, s string) string {
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
		return slog.String(a.Key, hide(t, text))
	}
	return slog.Attr{Key: a.Key, Value: v}
}

// Lines returns a writer that redacts each text written to it, as Log redacts a record.
func (r *Redaction) Lines(w io.Writer) io.Writer { return veiledLines{w, r} }

type veiledLines struct {
	w         io.Writer
	redaction *Redaction
}

func (v veiledLines) Write(b []byte) (int, error) {
	if _, err := io.WriteString(v.w, hide(v.redaction.newTable(), string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}
