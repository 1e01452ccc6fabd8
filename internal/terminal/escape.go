package terminal

import (
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

// Escaped writes for a terminal what a program wrote for anybody: text with its lines and tabs as it is, and escaped what would address
// the terminal (title, clipboard, keys that it answers with), overwrite a line or hide in one. Bytes that are no UTF-8 are shown
// as \xNN. Close writes what is left of a character that was cut off.
type Escaped struct {
	W    io.Writer
	rest []byte // the beginning of a character
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

// Close writes what is left.
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

// For returns w, which writes to f, with what a terminal is to be spared escaped if f is one. The function ends it.
func For(w io.Writer, f *os.File) (io.Writer, func()) {
	if !Is(f) {
		return w, func() {}
	}
	e := &Escaped{W: w}
	return e, func() { e.Close() }
}
