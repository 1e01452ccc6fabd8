package redact

import (
	"bytes"
	"fmt"
	"io"
)

// Restorer is [Table.Restore] for a stream: it passes on all that is written to it, with the table's tokens restored,
// however the text is split. It holds back an incomplete token, at most [maxToken] bytes. It must not be used by
// several goroutines.
type Restorer struct {
	t      *Table
	w      io.Writer
	held   []byte // entirely undecided
	out    []byte
	given  int
	misses missCollector
	err    error // the first error; nothing is written after it
}

// Restorer returns a Restorer that writes to w. The caller must Close it.
func (t *Table) Restorer(w io.Writer) *Restorer {
	return &Restorer{t: t, w: w, misses: missCollector{t: t}}
}

// Format keeps the held text out of fmt and log/slog.
func (r *Restorer) Format(f fmt.State, _ rune) { io.WriteString(f, "redact.Restorer") }

// Given returns how many tokens were restored. Left returns how many were not: this table never created them, could not
// keep their texts, or does not recognise the spelling.
func (r *Restorer) Given() int { return r.given }

// Left is explained at [Restorer.Given].
func (r *Restorer) Left() int { return r.misses.count }

// Missed returns the first misses that Left counts.
func (r *Restorer) Missed() []Miss { return r.misses.first }

// Write processes p. If w returns an error, every later call returns it too.
func (r *Restorer) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) && r.err == nil {
		next := min(n+piece, len(p))
		r.held = append(r.held, p[n:next]...)
		r.misses.searchPiece(p[n:next], false)
		r.writeDecided(false)
		n = next
	}
	if r.err != nil {
		return 0, r.err
	}
	return n, nil
}

// Close writes the held text. It does not close w. A Write after Close returns an error. If Close is called again, it
// returns the same result.
func (r *Restorer) Close() error {
	if r.err == nil {
		r.misses.searchPiece(nil, true)
		r.writeDecided(true)
	}
	if r.err == nil {
		r.err = errRestored
	}
	if r.err == errRestored {
		return nil
	}
	return r.err
}

var errRestored = fmt.Errorf("the restoring of this stream has ended: %w", io.ErrClosedPipe)

// writeDecided writes the decided text. The table is not locked during the write, because w may block.
func (r *Restorer) writeDecided(final bool) {
	rest := r.held
	for more := true; more && r.err == nil; {
		rest, more = r.restoreStep(rest, final)
		if len(r.out) > 0 {
			_, r.err = r.w.Write(r.out)
			r.out = r.out[:0]
		}
	}
	r.held = append(r.held[:0], rest...)
}

// restoreStep restores into out until out has the size of a piece, or until the rest needs more bytes; then more is false. The
// text of a single token may exceed the piece.
func (r *Restorer) restoreStep(b []byte, final bool) (rest []byte, more bool) {
	r.t.mu.RLock()
	defer r.t.mu.RUnlock()
	for len(r.out) < piece {
		i := bytes.Index(b, []byte(mark))
		if i < 0 {
			keep := partialMarkLen(b, mark, final)
			r.out = append(r.out, b[:len(b)-keep]...)
			return b[len(b)-keep:], false
		}
		r.out = append(r.out, b[:i]...)
		b = b[i:]
		if !final && !isDecided(b) {
			return b, false
		}
		b = b[r.restoreOne(b[:min(len(b), maxToken)]):]
	}
	return b, true
}

// restoreOne restores the token or escape at the start of b and returns its length.
func (r *Restorer) restoreOne(b []byte) int {
	text, n := r.t.readOriginal(string(b), func(Category, string) bool { return true })
	r.out = append(r.out, text...)
	if n > len(escaped) {
		r.given++
	}
	return n
}

// isDecided reports whether more bytes cannot change the meaning of the mark at the start of b.
func isDecided(b []byte) bool {
	return len(b) >= maxToken || bytes.HasPrefix(b, []byte(escaped)) || bytes.IndexByte(b, ']') >= 0
}
