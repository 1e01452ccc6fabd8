package redact

import (
	"fmt"
	"io"
	"strings"
)

// Writer redacts what is written to it, however it is split, and passes it on. It holds back what could
// be the beginning of a secret, until it is known; the package comment says what that is and how much. It
// belongs to one goroutine.
type Writer struct {
	w   io.Writer
	s   *stream
	err error // the first one; nothing is written after it
}

// piece bounds what one step of Write copies.
const piece = 64 << 10

// Writer returns a Writer that passes on to w. The caller must Close it.
func (t *Table) Writer(w io.Writer) *Writer { return &Writer{w: w, s: t.newStream()} }

// Tell makes w call f for each find, in order, when it goes out. Offsets count from the first byte written.
func (w *Writer) Tell(f func(Finding)) { w.s.tell = f }

// Format keeps what is held out of fmt and log/slog.
func (w *Writer) Format(f fmt.State, _ rune) { io.WriteString(f, "redact.Writer") }

// Write takes p. An error is w's, and stays.
func (w *Writer) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) && w.err == nil {
		next := min(n+piece, len(p))
		w.pass(p[n:next], false)
		n = next
	}
	if w.err != nil {
		return 0, w.err
	}
	return n, nil
}

// Close passes on what was held, redacted as the end of the text. It does not close w. Writing after it
// is an error; closing again returns what the first Close did.
func (w *Writer) Close() error {
	if w.err == nil {
		w.pass(nil, true)
	}
	if w.err == nil {
		w.err = errClosed
	}
	if w.err == errClosed {
		return nil
	}
	return w.err
}

var errClosed = fmt.Errorf("the redaction of this stream has ended: %w", io.ErrClosedPipe)

// Count returns how many tokens were made so far.
func (w *Writer) Count() int { return w.s.count }

// Escapes returns how many literal marks were escaped so far: only [Table.Restore] makes the text again what it was.
func (w *Writer) Escapes() int { return w.s.marks }

// Escapes counts the escaped marks in a text that was redacted.
func Escapes(s string) int { return strings.Count(s, escaped) }

func (w *Writer) pass(p []byte, final bool) {
	w.s.out = w.s.out[:0]
	w.s.feed(p, final)
	if len(w.s.out) == 0 {
		return
	}
	n, err := w.w.Write(w.s.out)
	if err == nil && n < len(w.s.out) {
		err = io.ErrShortWrite
	}
	w.err = err
}
