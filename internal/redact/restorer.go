package redact

import (
	"bytes"
	"fmt"
	"io"
)

// Restorer is [Table.Restore] over a stream: what is written to it comes out with the table's tokens restored,
// however it is split. It holds back a token that is not over, [maxToken] bytes at most. It belongs to one goroutine.
type Restorer struct {
	t     *Table
	w     io.Writer
	held  []byte // nothing of it is decided
	out   []byte
	given int
	left  int
	err   error // the first one; nothing is written after it
}

// Restorer returns one that passes on to w. The caller must Close it.
func (t *Table) Restorer(w io.Writer) *Restorer { return &Restorer{t: t, w: w} }

// Format keeps what is held out of fmt and log/slog.
func (r *Restorer) Format(f fmt.State, _ rune) { io.WriteString(f, "redact.Restorer") }

// Given returns how many tokens became what they stand for, Left how many did not, because this table never gave
// them out or could not keep what they stand for.
func (r *Restorer) Given() int { return r.given }

// Left is explained at [Restorer.Given].
func (r *Restorer) Left() int { return r.left }

// Write takes p. An error is w's, and stays.
func (r *Restorer) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) && r.err == nil {
		next := min(n+piece, len(p))
		r.held = append(r.held, p[n:next]...)
		r.pass(false)
		n = next
	}
	if r.err != nil {
		return 0, r.err
	}
	return n, nil
}

// Close passes on what was held. It does not close w. Writing after it is an error; closing again returns what the
// first Close did.
func (r *Restorer) Close() error {
	if r.err == nil {
		r.pass(true)
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

// pass writes what is decided. The table is not locked meanwhile, since w may stall.
func (r *Restorer) pass(final bool) {
	rest := r.held
	for more := true; more && r.err == nil; {
		rest, more = r.step(rest, final)
		if len(r.out) > 0 {
			_, r.err = r.w.Write(r.out)
			r.out = r.out[:0]
		}
	}
	r.held = append(r.held[:0], rest...)
}

// step restores into out until that is a piece, or until the rest waits for more bytes: then more is false. What one
// token stands for may go beyond the piece.
func (r *Restorer) step(b []byte, final bool) (rest []byte, more bool) {
	r.t.mu.RLock()
	defer r.t.mu.RUnlock()
	for len(r.out) < piece {
		i := bytes.Index(b, []byte(mark))
		if i < 0 {
			keep := overlap(b, mark, final)
			r.out = append(r.out, b[:len(b)-keep]...)
			return b[len(b)-keep:], false
		}
		r.out = append(r.out, b[:i]...)
		b = b[i:]
		if !final && !decided(b) {
			return b, false
		}
		b = b[r.one(b[:min(len(b), maxToken)]):]
	}
	return b, true
}

// one restores what begins with a mark and returns how long it is.
func (r *Restorer) one(b []byte) int {
	text, n := r.t.original(string(b), func(Category) bool { return true })
	r.out = append(r.out, text...)
	switch end := bytes.IndexByte(b, ']'); {
	case n > len(escaped):
		r.given++
	case n == len(mark) && end > n && !bytes.ContainsAny(b[:end], " \t\r\n"):
		r.left++
	}
	return n
}

// decided holds when more bytes change nothing about what b, which begins with a mark, stands for.
func decided(b []byte) bool {
	return len(b) >= maxToken || bytes.HasPrefix(b, []byte(escaped)) || bytes.IndexByte(b, ']') >= 0
}
