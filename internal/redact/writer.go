package redact

import (
	"fmt"
	"io"
	"strings"
)

// Writer redacts all text that is written to it, however it is split, and passes it on. It holds back text that could
// be the beginning of a secret until that is decided; the package comment gives the cases and limits. It must not be
// used by several goroutines.
type Writer struct {
	w   io.Writer
	s   *stream
	err error // the first error; nothing is written after it
}

// piece limits the bytes that one step of Write copies.
const piece = 64 << 10

// Writer returns a Writer that writes to w. The caller must Close it.
func (t *Table) Writer(w io.Writer) *Writer { return &Writer{w: w, s: t.newStream()} }

// Tell makes w call f for each find, in order, when the find is written. Offsets count from the first byte written to
// w.
func (w *Writer) Tell(f func(Finding)) { w.s.tell = f }

// Format keeps the held text out of fmt and log/slog.
func (w *Writer) Format(f fmt.State, _ rune) { io.WriteString(f, "redact.Writer") }

// Write processes p. If the underlying writer returns an error, every later call returns it too.
func (w *Writer) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) && w.err == nil {
		next := min(n+piece, len(p))
		w.writePiece(p[n:next], false)
		n = next
	}
	if w.err != nil {
		return 0, w.err
	}
	return n, nil
}

// Close writes the held text, redacted as the end of the text. It does not close the underlying writer. A Write after
// Close returns an error. If Close is called again, it returns the same result.
func (w *Writer) Close() error {
	if w.err == nil {
		w.writePiece(nil, true)
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

// Count returns the number of tokens created so far.
func (w *Writer) Count() int { return w.s.count }

// Escapes returns how many literal marks were escaped so far. Only [Table.Restore] reverses these escapes.
func (w *Writer) Escapes() int { return w.s.marks }

// Escapes counts the escaped marks in a redacted text.
func Escapes(s string) int { return strings.Count(s, escaped) }

func (w *Writer) writePiece(p []byte, final bool) {
	w.s.out = w.s.out[:0]
	w.s.feedPiece(p, final)
	if len(w.s.out) == 0 {
		return
	}
	n, err := w.w.Write(w.s.out)
	if err == nil && n < len(w.s.out) {
		err = io.ErrShortWrite
	}
	w.err = err
}
