package modelwire

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"bailey"
)

// document is a JSON text with the place of each of its values. Members of an object are two nodes, the key and the
// value.
type document struct {
	b     []byte
	nodes []node
}

// node is one value: the bytes b[start:end], and the nodes up to next, the index of the node after its subtree.
type node struct {
	kind             byte // of jsontext: { [ " 0 t f n
	start, end, next int32
}

// maxNodes limits the values and keys of a body, so that many short ones do not take many times its memory.
const maxNodes = 4 << 20

// noNode is the index of a value that does not exist.
const noNode = -1

var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// parseDocument reads one JSON value. It keeps b. The nodes are appended to reuse, which may be nil.
func parseDocument(b []byte, reuse []node) (document, error) {
	if len(b) > MaxBody {
		return document{}, bailey.Invalid.Wrapf(ErrTooLarge, "Shorten the conversation.",
			"the body has %d bytes, more than %d", len(b), MaxBody)
	}
	if !utf8.Valid(b) {
		return document{}, unreadableBody("it is not UTF-8")
	}
	// A string can contain half of a surrogate pair, as RFC 8259, section 8.2, allows.
	d := decoders.Get().(*jsontext.Decoder)
	defer func() {
		d.Reset(new(bytes.Buffer)) // so that the pool does not keep b
		decoders.Put(d)
	}()
	d.Reset(bytes.NewBuffer(b), jsontext.AllowInvalidUTF8(true))
	doc := document{b: b, nodes: reuse[:0]}
	var open []int32
	for pos := 0; ; {
		token, err := d.ReadToken()
		if err == io.EOF && len(open) == 0 && len(doc.nodes) > 0 {
			return doc, nil
		}
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return document{}, unreadableBody("a key is twice in one object")
		}
		if err != nil {
			return document{}, unreadableBody("it is not JSON")
		}
		for b[pos] == ' ' || b[pos] == '\t' || b[pos] == '\n' || b[pos] == '\r' || b[pos] == ',' || b[pos] == ':' {
			pos++
		}
		end := int(d.InputOffset())
		kind := byte(token.Kind())
		switch kind {
		case '}', ']':
			n := &doc.nodes[open[len(open)-1]]
			n.end, n.next = int32(end), int32(len(doc.nodes))
			open = open[:len(open)-1]
		default:
			if len(open) == 0 && len(doc.nodes) > 0 {
				return document{}, unreadableBody("more data follows the value")
			}
			if len(doc.nodes) >= maxNodes {
				return document{}, bailey.Invalid.Wrapf(ErrTooLarge, "Shorten the conversation.",
					"the body has more than %d values and keys", maxNodes)
			}
			doc.nodes = append(doc.nodes, node{kind, int32(pos), int32(end), int32(len(doc.nodes) + 1)})
			if kind == '{' || kind == '[' {
				if open = append(open, int32(len(doc.nodes)-1)); len(open) > MaxDepth {
					return document{}, unreadableBody("it is nested deeper than " + strconv.Itoa(MaxDepth))
				}
			}
		}
		pos = end
	}
}

// unreadableBody returns an error for a body that must not be forwarded.
func unreadableBody(why string) error {
	return bailey.Invalid.Wrapf(ErrUnreadable, "Send one JSON value in UTF-8.", "cannot read the body: %s", why)
}

// rawValue returns the bytes of a value, or none if it does not exist.
func (d *document) rawValue(n int) []byte {
	if n < 0 {
		return nil
	}
	return d.b[d.nodes[n].start:d.nodes[n].end]
}

// kindOf returns the kind of a value, or 0 if it does not exist.
func (d *document) kindOf(n int) byte {
	if n < 0 {
		return 0
	}
	return d.nodes[n].kind
}

// textOf returns the text of a string, or "" for any other value.
func (d *document) textOf(n int) string {
	if d.kindOf(n) != '"' {
		return ""
	}
	return unquoteText(d.rawValue(n))
}

// integerOf returns the value of a number, or 0 for any other value.
func (d *document) integerOf(n int) int64 {
	if d.kindOf(n) != '0' {
		return 0
	}
	if i, err := strconv.ParseInt(string(d.rawValue(n)), 10, 64); err == nil {
		return i
	}
	f, err := strconv.ParseFloat(string(d.rawValue(n)), 64)
	if err != nil || math.Abs(f) >= 1<<62 {
		return 0
	}
	return int64(f)
}

// isTrue reports whether a value is true.
func (d *document) isTrue(n int) bool { return d.kindOf(n) == 't' }

// memberOf returns the value of a key of an object.
func (d *document) memberOf(n int, name string) int {
	if d.kindOf(n) != '{' {
		return noNode
	}
	for k := n + 1; k < int(d.nodes[n].next); k = int(d.nodes[k+1].next) {
		if d.isKey(k, name) {
			return k + 1
		}
	}
	return noNode
}

// isKey reports whether the string n is name.
func (d *document) isKey(n int, name string) bool {
	raw := d.rawValue(n)
	if bytes.IndexByte(raw, '\\') >= 0 {
		return unquoteText(raw) == name
	}
	return string(raw[1:len(raw)-1]) == name
}

// atPath returns the value at a path of keys.
func (d *document) atPath(n int, path ...string) int {
	for _, name := range path {
		if n = d.memberOf(n, name); n < 0 {
			return noNode
		}
	}
	return n
}

// eachMember calls f for each member of an object. It does nothing for any other value.
func (d *document) eachMember(n int, f func(key string, k, v int)) {
	if d.kindOf(n) != '{' {
		return
	}
	for k := n + 1; k < int(d.nodes[n].next); k = int(d.nodes[k+1].next) {
		f(d.textOf(k), k, k+1)
	}
}

// eachElement calls f for each element of an array. It does nothing for any other value.
func (d *document) eachElement(n int, f func(i, v int)) {
	if d.kindOf(n) != '[' {
		return
	}
	for i, v := 0, n+1; v < int(d.nodes[n].next); i, v = i+1, int(d.nodes[v].next) {
		f(i, v)
	}
}

// unquoteText returns the text of a valid JSON string. Half of a surrogate pair becomes the three bytes that UTF-8
// would have for it (WTF-8), so that quoteText can write it again.
func unquoteText(raw []byte) string {
	raw = raw[1 : len(raw)-1]
	i := bytes.IndexByte(raw, '\\')
	if i < 0 {
		return string(raw)
	}
	out := make([]byte, 0, len(raw))
	for ; i >= 0; i = bytes.IndexByte(raw, '\\') {
		out = append(out, raw[:i]...)
		var n int
		out, n = appendEscape(out, raw[i:])
		raw = raw[i+n:]
	}
	return string(append(out, raw...))
}

// appendEscape appends the meaning of the escape at the start of raw, which must be whole, and returns its length.
func appendEscape(out, raw []byte) ([]byte, int) {
	switch c := raw[1]; c {
	case 'b':
		return append(out, '\b'), 2
	case 'f':
		return append(out, '\f'), 2
	case 'n':
		return append(out, '\n'), 2
	case 'r':
		return append(out, '\r'), 2
	case 't':
		return append(out, '\t'), 2
	case 'u':
	default:
		return append(out, c), 2
	}
	first := parseUnit(raw[2:])
	if first >= 0xd800 && first < 0xdc00 && len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
		if r := utf16.DecodeRune(first, parseUnit(raw[8:])); r != utf8.RuneError {
			return utf8.AppendRune(out, r), 12
		}
	}
	if utf16.IsSurrogate(first) {
		return append(out, 0xe0|byte(first>>12), 0x80|byte(first>>6)&0x3f, 0x80|byte(first)&0x3f), 6
	}
	return utf8.AppendRune(out, first), 6
}

// parseUnit reads four hexadecimal digits.
func parseUnit(raw []byte) rune {
	v, err := strconv.ParseUint(string(raw[:4]), 16, 16)
	if err != nil {
		return utf8.RuneError
	}
	return rune(v)
}

// quoteText appends text as a JSON string.
func quoteText(out []byte, text string) []byte {
	return append(appendQuoted(append(out, '"'), text), '"')
}

// appendQuoted appends text as the inside of a JSON string, with as few escapes as RFC 8259 allows.
func appendQuoted(out []byte, text string) []byte {
	const hex = "0123456789abcdef"
	plain := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		size := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, size = utf8.DecodeRuneInString(text[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		out = append(out, text[plain:i]...)
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c == '\n':
			out = append(out, `\n`...)
		case c == '\r':
			out = append(out, `\r`...)
		case c == '\t':
			out = append(out, `\t`...)
		case c < ' ':
			out = append(out, `\u00`...)
			out = append(out, hex[c>>4], hex[c&15])
		case isHalfPair(text[i:]):
			unit := rune(c&0xf)<<12 | rune(text[i+1]&0x3f)<<6 | rune(text[i+2]&0x3f)
			out = append(out, `\u`...)
			out = append(out, hex[unit>>12], hex[unit>>8&15], hex[unit>>4&15], hex[unit&15])
			size = 3
		default:
			out = append(out, `\ufffd`...)
		}
		i += size
		plain = i
	}
	return append(out, text[plain:]...)
}

// isHalfPair reports whether text begins with half of a surrogate pair in WTF-8.
func isHalfPair(text string) bool {
	return len(text) >= 3 && text[0] == 0xed && text[1] >= 0xa0 && text[1] < 0xc0 && text[2] >= 0x80 && text[2] < 0xc0
}
