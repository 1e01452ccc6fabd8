package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"bailey"
	"bailey/internal/redact"
)

// maxLine is the maximum size of a JSON line in bytes.
const maxLine = 4 << 20

// answerSize is the number of bytes from which answers are written before the available input has been read.
const answerSize = 64 << 10

// jsonLines answers lines of the form {"text":…} with {"text":…,"findings":…}. Each text is redacted separately, with
// one common table. An invalid line ends the stream after the answers to earlier lines. Only one goroutine may use a
// jsonLines.
type jsonLines struct {
	table *redact.Table
	tally *tally
	w     io.Writer
	line  []byte // current line, not complete yet
	n     int    // answered lines
	out   bytes.Buffer
}

type answered struct {
	Text     string           `json:"text"`
	Findings []redact.Finding `json:"findings"`
}

// Write answers the lines that are complete after p.
func (l *jsonLines) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, after, over := bytes.Cut(rest, []byte{'\n'})
		rest = after
		if len(l.line)+len(line) > maxLine {
			return 0, l.end(l.bad(fmt.Sprintf("is over the %d bytes allowed", maxLine), "split its text"))
		}
		l.line = append(l.line, line...)
		if !over {
			break
		}
		if err := l.answer(); err != nil {
			return 0, l.end(err)
		}
	}
	return len(p), l.flush()
}

// Close answers a last line without a newline.
func (l *jsonLines) Close() error {
	if len(l.line) == 0 {
		return l.flush()
	}
	return l.end(l.answer())
}

// end writes the pending answers and then returns err.
func (l *jsonLines) end(err error) error {
	if broken := l.flush(); broken != nil {
		return broken
	}
	return err
}

func (l *jsonLines) flush() error {
	if l.out.Len() == 0 {
		return nil
	}
	_, err := l.w.Write(l.out.Bytes())
	if l.out.Reset(); l.out.Cap() > 1<<20 { // do not keep a large buffer after one long line
		l.out = bytes.Buffer{}
	}
	return err
}

func (l *jsonLines) answer() error {
	text, why := textOf(l.line)
	if why != "" {
		return l.bad(why, `each line is an object with a text, as in {"text":"…"}`)
	}
	if l.line = l.line[:0]; cap(l.line) > 1<<20 {
		l.line = nil
	}
	out, found := l.table.Find(text)
	if !utf8.ValidString(out) { // the bytes between two findings may not be valid text
		return l.bad("cannot be hidden in part and stay UTF-8", "leave it out")
	}
	l.n++
	l.tally.marks += redact.Escapes(out)
	for _, f := range found {
		l.tally.add(f, l.n)
	}
	if found == nil {
		found = []redact.Finding{}
	}
	enc := json.NewEncoder(&l.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(answered{out, found}); err != nil {
		return err
	}
	if l.out.Len() < answerSize {
		return nil
	}
	return l.flush()
}

// badLine is an error that ends a stream; the answers before it stay valid.
type badLine struct{ error }

func (b badLine) Unwrap() error { return b.error }

// bad returns an error with the number of the current line. It quotes nothing from the line.
func (l *jsonLines) bad(why, cure string) error {
	return badLine{&bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("line %d %s", l.n+1, why), Hint: cure}}
}

// textOf returns the text of a line, or the reason why the line is invalid.
func textOf(line []byte) (text, why string) {
	if !utf8.Valid(line) {
		return "", "is not UTF-8"
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return "", "is no JSON object"
	}
	has := false
	for dec.More() {
		key, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			return "", "is no JSON object"
		}
		if key != "text" {
			continue
		}
		switch {
		case has:
			return "", "has two texts"
		case value[0] != '"':
			return "", "has a text that is no string"
		case halved(value):
			return "", "has half a surrogate pair in its text"
		case json.Unmarshal(value, &text) != nil:
			return "", "is no JSON object"
		}
		has = true
	}
	if _, err := dec.Token(); err != nil {
		return "", "is no JSON object"
	}
	if _, err := dec.Token(); err != io.EOF {
		return "", "has more than one value"
	}
	if !has {
		return "", "has no text"
	}
	return text, ""
}

// halved reports whether a JSON string has an escape that represents no character, which is a lone surrogate (RFC 8259,
// section 8.2). A reader would replace it, and the offsets would refer to the changed text.
func halved(s []byte) bool {
	for i := 0; i+1 < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		i++
		if s[i] != 'u' {
			continue
		}
		switch high, low := surrogate(s, i-1), surrogate(s, i+5); {
		case high == 0:
		case high != 'h' || low != 'l':
			return true
		default:
			i += 6
		}
	}
	return false
}

// surrogate returns 'h' or 'l' if the escape at s[i:] is a high or low surrogate, and zero otherwise.
func surrogate(s []byte, i int) byte {
	if i+6 > len(s) || s[i] != '\\' || s[i+1] != 'u' || s[i+2]|0x20 != 'd' {
		return 0
	}
	switch c := s[i+3] | 0x20; {
	case c == '8' || c == '9' || c == 'a' || c == 'b':
		return 'h'
	case c >= 'c' && c <= 'f':
		return 'l'
	}
	return 0
}
