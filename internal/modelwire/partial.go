package modelwire

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"
)

// partial edits the strings of a JSON text that arrives in pieces, cut at any byte. Strings that do not change keep
// their spelling. It never fails: from the first byte that is no JSON, all bytes pass as they are. Keys stay.
type partial struct {
	where  Where
	writer func(Where, io.Writer) io.WriteCloser
	out    *bytes.Buffer

	stack  []level
	broken bool
	inText bool      // inside a string
	isKey  bool      // the string is a key
	key    []byte    // the present key, as it came
	text   stringTap // the present value, if it is a string
	escape []byte    // the beginning of an escape
	err    error     // the first error of a writer
}

// level is an array or object that is open.
type level struct {
	object bool
	key    string
	index  int
	names  bool // a key comes next
}

func newPartial(where Where, writer func(Where, io.Writer) io.WriteCloser, out *bytes.Buffer) *partial {
	return &partial{where: where, writer: writer, out: out}
}

// restorePartial edits a whole text as [partial] edits its pieces.
func restorePartial(s string, where Where, text TextFunc) string {
	var out bytes.Buffer
	p := newPartial(where, wholeWriters(text), &out)
	p.writePiece(s)
	p.finishText()
	return out.String()
}

// wholeWriters returns writers that pass the whole text to a function.
func wholeWriters(text TextFunc) func(Where, io.Writer) io.WriteCloser {
	return func(where Where, out io.Writer) io.WriteCloser { return &wholeWriter{where, text, nil, out} }
}

type wholeWriter struct {
	where Where
	text  TextFunc
	held  []byte
	out   io.Writer
}

func (w *wholeWriter) Write(p []byte) (int, error) {
	w.held = append(w.held, p...)
	return len(p), nil
}

func (w *wholeWriter) Close() error {
	_, err := io.WriteString(w.out, w.text(w.where, string(w.held)))
	return err
}

// writePiece processes the next piece.
func (p *partial) writePiece(s string) {
	for len(s) > 0 {
		switch {
		case p.broken:
			p.out.WriteString(s)
			return
		case p.inText:
			s = p.readText(s)
		default:
			p.readByte(s[0])
			s = s[1:]
		}
	}
}

// finishText writes all that is held back. The text may be incomplete.
func (p *partial) finishText() {
	if p.inText && !p.isKey {
		p.flushEscape()
		p.text.finishString()
	} else {
		p.out.Write(p.escape)
	}
	p.inText, p.escape, p.broken = false, nil, true // the rest of a text that is no JSON passes
}

// readByte processes a byte outside of strings.
func (p *partial) readByte(c byte) {
	var top *level
	if len(p.stack) > 0 {
		top = &p.stack[len(p.stack)-1]
	}
	p.out.WriteByte(c)
	switch c {
	case '"':
		p.openText(top)
	case '{', '[':
		if len(p.stack) == MaxDepth || top != nil && top.names {
			p.broken = true
			return
		}
		p.stack = append(p.stack, level{object: c == '{', names: c == '{'})
	case '}', ']':
		if top == nil || top.object != (c == '}') {
			p.broken = true
			return
		}
		p.stack = p.stack[:len(p.stack)-1]
	case ',':
		if top == nil {
			p.broken = true
			return
		}
		top.index++
		top.names = top.object
	case ':':
		if top == nil || !top.object {
			p.broken = true
			return
		}
		top.names = false
	}
}

// openText begins a string.
func (p *partial) openText(top *level) {
	p.inText, p.isKey = true, top != nil && top.names
	if p.isKey {
		p.key = append(p.key[:0], '"')
		return
	}
	where := p.where
	for i := range p.stack {
		if p.stack[i].object {
			where = where.inMember(p.stack[i].key)
		} else {
			where = where.inElement(p.stack[i].index)
		}
	}
	p.text = stringTap{out: p.out, parts: p.text.parts, err: &p.err}
	p.text.w = p.writer(where, &p.text)
}

// readText processes bytes inside a string and returns the rest.
func (p *partial) readText(s string) string {
	if len(p.escape) > 0 {
		return p.readEscape(s)
	}
	n := 0
	for n < len(s) && s[n] != '"' && s[n] != '\\' {
		n++
	}
	if n > 0 {
		p.pushPart(s[:n], s[:n])
	}
	switch {
	case n == len(s):
		return ""
	case s[n] == '\\':
		p.escape = append(p.escape[:0], '\\')
	case p.isKey:
		p.out.WriteByte('"')
		p.stack[len(p.stack)-1].key = unquoteText(append(p.key, '"'))
		p.inText = false
	default:
		p.text.finishString()
		p.out.WriteByte('"')
		p.inText = false
	}
	return s[n+1:]
}

// pushPart processes a part of a string: as it is spelt, and its meaning.
func (p *partial) pushPart(raw, meaning string) {
	if p.isKey {
		p.out.WriteString(raw)
		if len(p.key) < 6*maxPlace { // in its longest spelling; the place of a longer key is longPlace
			p.key = append(p.key, raw...)
		}
		return
	}
	p.text.pushPart(raw, meaning)
}

// readEscape continues an escape that has begun, and returns the rest of s. The two halves of a surrogate pair are one
// escape.
func (p *partial) readEscape(s string) string {
	c := s[0]
	n := len(p.escape)
	ok := true
	switch {
	case n == 1:
		ok = c == 'u' || strings.IndexByte(simpleEscapes, c) >= 0
	case n == 6 && c != '\\', n == 7 && c != 'u': // a half without the other one
		first := string(p.escape[:6])
		p.pushEscape(first)
		if n == 7 {
			p.escape = append(p.escape[:0], '\\')
		}
		return s
	case n == 6, n == 7:
	default:
		ok = isHex(c)
	}
	if !ok {
		p.finishText()
		return s
	}
	p.escape = append(p.escape, c)
	switch n = len(p.escape); {
	case n == 2 && c != 'u', n == 12, n == 6 && !isHighHalf(p.escape):
		p.pushEscape(string(p.escape))
	}
	return s[1:]
}

const (
	simpleEscapes  = `"\/bfnrt`
	simpleMeanings = "\"\\/\b\f\n\r\t"
)

// pushEscape processes whole escapes.
func (p *partial) pushEscape(raw string) {
	p.escape = p.escape[:0]
	if len(raw) == 2 { // without an allocation
		if i := strings.IndexByte(simpleEscapes, raw[1]); i >= 0 {
			p.pushPart(raw, simpleMeanings[i:i+1])
			return
		}
	}
	var meaning []byte
	for rest := []byte(raw); len(rest) > 0; {
		var n int
		meaning, n = appendEscape(meaning, rest)
		rest = rest[n:]
	}
	p.pushPart(raw, string(meaning))
}

// flushEscape processes the escape that the text ends in.
func (p *partial) flushEscape() {
	if len(p.escape) >= 6 {
		rest := string(p.escape[6:])
		p.pushEscape(string(p.escape[:6]))
		p.escape = []byte(rest)
	}
	p.text.tail = string(p.escape)
	p.escape = nil
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// isHighHalf reports whether an escape of six bytes is the first half of a surrogate pair.
func isHighHalf(escape []byte) bool {
	unit := parseUnit(escape[2:])
	return unit >= 0xd800 && unit < 0xdc00
}

// stringTap passes the meaning of a string's parts to a writer. As long as the writer writes the same, the string keeps
// its spelling; from the first difference on, it is quoted anew.
type stringTap struct {
	w       io.WriteCloser // nil: the string stays
	out     *bytes.Buffer
	parts   []part // passed to the writer; from first on, not yet written by it
	first   int
	written []byte // written by the writer, and not yet passed on
	changed bool
	tail    string // an incomplete escape at the end
	err     *error
}

type part struct{ raw, meaning string }

// pushPart passes a part to the writer.
func (t *stringTap) pushPart(raw, meaning string) {
	if t.w == nil {
		t.out.WriteString(raw)
		return
	}
	if !t.changed {
		t.parts = append(t.parts, part{raw, meaning})
	}
	_, err := io.WriteString(t.w, meaning)
	t.keepError(err)
}

func (t *stringTap) keepError(err error) {
	if *t.err == nil {
		*t.err = err
	}
}

// Write gets what the writer writes.
func (t *stringTap) Write(b []byte) (int, error) {
	t.written = append(t.written, b...)
	t.passOn(false)
	return len(b), nil
}

// passOn passes on what has been written, except for the beginning of a part or a character.
func (t *stringTap) passOn(final bool) {
	for !t.changed && len(t.written) > 0 && t.first < len(t.parts) {
		first := &t.parts[t.first]
		n := min(len(first.meaning), len(t.written))
		switch {
		case first.meaning[:n] != string(t.written[:n]):
			t.passEqual(first)
			t.changed = true
		case n == len(first.meaning):
			t.out.WriteString(first.raw)
			t.written = append(t.written[:0], t.written[n:]...)
			if t.first++; t.first == len(t.parts) {
				t.parts, t.first = t.parts[:0], 0
			}
		case first.raw == first.meaning:
			t.out.WriteString(first.raw[:n])
			first.raw, first.meaning, t.written = first.raw[n:], first.meaning[n:], t.written[n:]
		default:
			return // in the middle of an escape
		}
	}
	if len(t.written) == 0 {
		return
	}
	t.changed = true
	n := len(t.written)
	if !final {
		n -= cutRune(t.written)
	}
	t.out.Write(appendQuoted(nil, string(t.written[:n])))
	t.written = append(t.written[:0], t.written[n:]...)
}

// passEqual passes on the beginning that is the same as that of a part without escapes.
func (t *stringTap) passEqual(first *part) {
	if first.raw != first.meaning {
		return
	}
	n := 0
	for n < len(first.meaning) && n < len(t.written) && first.meaning[n] == t.written[n] {
		n++
	}
	for n > 0 && n < len(t.written) && !utf8.RuneStart(t.written[n]) {
		n--
	}
	t.out.WriteString(first.raw[:n])
	t.written = t.written[n:]
}

// finishString closes the writer and writes the rest.
func (t *stringTap) finishString() {
	if t.w != nil {
		t.keepError(t.w.Close())
		t.passOn(true)
	}
	t.out.WriteString(t.tail)
	*t = stringTap{parts: t.parts[:0]}
}

// cutRune returns how many bytes at the end of b begin a character that is incomplete.
func cutRune(b []byte) int {
	for n := 1; n <= min(len(b), utf8.UTFMax-1); n++ {
		if utf8.RuneStart(b[len(b)-n]) {
			if c := b[len(b)-n:]; !utf8.FullRune(c) || n < 3 && c[0] == 0xed { // also half of a pair in WTF-8
				return n
			}
			break
		}
	}
	return 0
}
