package terminal

import (
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

// Escaped writes the output of a program to a terminal. Text, newlines and tabs stay as they are. It escapes characters
// that could control the terminal (for example its title, its clipboard, or keys that it answers with), overwrite a
// line or be invisible. Bytes that are not UTF-8 are shown as \xNN. The caller must call Close, which writes the bytes
// of an incomplete last character.
type Escaped struct {
	W    io.Writer
	rest []byte // the bytes of an incomplete character
}

func (e *Escaped) Write(p []byte) (int, error) {
	text := append(e.rest, p...)
	out := make([]byte, 0, len(text)+len(text)/8)
	for len(text) > 0 && utf8.FullRune(text) {
		r, n := utf8.DecodeRune(text)
		out, text = appendShown(out, r, text[:n]), text[n:]
	}
	e.rest = append([]byte(nil), text...)
	if _, err := e.W.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes the buffered bytes.
func (e *Escaped) Close() error {
	var out []byte
	for _, b := range e.rest {
		out = appendShown(out, utf8.RuneError, []byte{b})
	}
	e.rest = nil
	_, err := e.W.Write(out)
	return err
}

func appendShown(out []byte, r rune, as []byte) []byte {
	switch {
	case r == utf8.RuneError && len(as) == 1:
		return fmt.Appendf(out, `\x%02x`, as[0])
	case r != '\n' && r != '\t' && Strange(r):
		return append(out, Shown(string(r))...)
	}
	return append(out, as...)
}

// For returns w, which writes to f; if f is a terminal, the result escapes as [Escaped] does. The caller must call the
// function after the last write.
func For(w io.Writer, f *os.File) (io.Writer, func()) {
	if !Is(f) {
		return w, func() {}
	}
	e := &Escaped{W: w}
	return e, func() { e.Close() }
}
