package redact

import (
	"bytes"
)

// maxPhrase limits a mnemonic without quotes: 24 words of eight letters and a space.
const maxPhrase = 24 * 9

// maxTries limits how many offsets in one word are examined at length.
const maxTries = 16

// decideValue decides on the text at v, the value that the last word expects. It returns the end of the find, or v if
// there is none. If open is set, it must wait for more bytes.
func (f *finder) decideValue(b []byte, v int, final bool, add func(span)) (end int, open bool) {
	if far := v - f.last.end; far < 0 || far > maxName {
		f.ask = nothing
		return v, false
	}
	if f.bare.isExhausted(v) {
		f.ask = nothing
		return v, false
	}
	q := &candidate{ask: f.ask, sep: f.sep, name: f.last.nameBytes(b), v: v, b: b}
	if n := f.last.start; n > 0 && f.last.end-n <= maxName {
		q.inURL = b[n-1] == '?' || b[n-1] == '&'
		q.tag = b[n-1] == '<' || b[n-1] == ':'
	}
	end, closed, open := q.valueEnd(final)
	if open {
		return v, true
	}
	if scheme, own := q.startsWithScheme(end); scheme {
		f.ask, f.scheme = nothing, own // Bearer expects a value itself
		return v, false
	}
	q.closed = closed
	s, category := q.judgeValue(f, end)
	if s.end > s.start {
		if s.end, open = q.extendYAMLLine(f, s.end, final); open {
			return v, true
		}
	}
	f.ask = nothing
	if s.end <= s.start {
		f.bare.noteMiss(v, end)
		return v, false
	}
	category = f.refineCategory(category, b[s.start:s.end])
	add(span{s.start, s.end, category})
	if s.end-v >= maxValue {
		f.tail = category
	}
	f.sep, f.last = separator{}, byteRange{v, v}
	if s.end-s.start == keyID { // the secret of the id may follow
		f.last = s
	}
	return s.end, false
}

// candidate is a value, its name, and the kind of value that the name expects.
type candidate struct {
	ask    valueKind
	sep    separator
	name   []byte // the last word
	b      []byte
	v      int
	inURL  bool // the name is a parameter of a URL
	tag    bool // the name is that of an XML element
	closed bool // the value ends at the quote that matches the opening one
}

// valueEnd returns the end of the value.
func (q *candidate) valueEnd(final bool) (end int, closed, open bool) {
	limit := min(len(q.b), q.v+maxValue)
	if q.ask == forLogin && classes[q.b[q.v]]&quote != 0 {
		q.sep.opened, q.v = q.b[q.v], q.v+1
		defer func() { q.v, end = q.v-1, end+b2i(closed) }()
	}
	if q.sep.opened != 0 {
		for i := q.v; i < limit; i++ {
			c := q.b[i]
			if classes[c]&line != 0 {
				return q.bareValueEnd(limit, final)
			}
			if c == q.sep.opened && i > q.v && (q.b[i-1] == '\\') == q.sep.escaped {
				if q.sep.escaped {
					i--
				}
				return i, true, false
			}
			if c == q.sep.opened && i == q.v {
				return i, true, false
			}
		}
		if limit == len(q.b) && limit < q.v+maxValue && !final {
			return 0, false, true
		}
	}
	return q.bareValueEnd(limit, final)
}

// bareValueEnd returns the end of a value without quotes. A token ends at a sign that no token contains. A password may
// contain any sign, so it ends where the next name begins.
func (q *candidate) bareValueEnd(limit int, final bool) (end int, closed, open bool) {
	i := q.v
	if q.ask == forToken && q.expectsPhrase() {
		limit = min(limit, q.v+maxPhrase)
	}
	element := q.sep.inElement()
	for i < limit && !q.endsValue(i, limit) && !(!element && i > q.v && q.startsNextPair(i)) {
		i++
	}
	if i == limit && limit == len(q.b) && limit < q.v+maxValue && !final {
		return 0, false, true
	}
	if q.ask == forSecret && !element {
		i = q.v + passwordEnd(q.b[q.v:i])
	}
	return i, false, false
}

// startsNextPair reports whether another name and value follow the sign at i: Password=…;Encrypt=true. If the bytes do
// not suffice to decide, they do not suffice for the end of the value either.
func (q *candidate) startsNextPair(i int) bool {
	if c := q.b[i]; c != ',' && c != ';' && c != '&' {
		return false
	}
	b := q.b[:min(len(q.b), i+1+maxName)]
	n := runEnd(b, i+1, alnum_|joint)
	return n > i+1 && n < len(b) && (b[n] == '=' || b[n] == ':')
}

// endsValue reports whether no unquoted value extends over the byte at i.
func (q *candidate) endsValue(i, limit int) bool {
	k, c := classes[q.b[i]], q.b[i]
	switch {
	case q.sep.inElement():
		return k&line != 0 || c == '<' || c == '\\'
	// the words of a mnemonic
	case k&blank != 0 && i > q.v && q.ask == forToken && q.expectsPhrase() && classes[q.b[i-1]]&lower != 0:
		return false
	case k&(gap|quote) != 0 || q.inURL && c == '&':
		return true
	case q.ask == forSecret && c == '\\': // \n of a string in a string
		return i+1 < limit && bytes.IndexByte([]byte("nrtu\"'`"), q.b[i+1]) >= 0
	case q.ask == forSecret:
		return c == '<' && i > q.v
	case c == '\\':
		return true
	}
	return k&stop != 0 && i > q.v
}

// passwordEnd returns the end of a password, without brackets and commas at its end.
func passwordEnd(text []byte) int {
	if bytes.HasSuffix(text, []byte("):")) { // of a function in Python
		text = text[:len(text)-2]
	}
	return len(bytes.TrimRight(text, ",;)]}"))
}

// startsWithScheme reports whether the value begins with the name of an authentication scheme, which then expects a
// value itself. After Authorization, any other name is a service's own scheme.
func (q *candidate) startsWithScheme(end int) (yes, own bool) {
	w := q.b[q.v:runEnd(q.b[:end], q.v, word)]
	if len(w) > 12 || len(w) < 3 {
		return false, false
	}
	next := q.v+len(w) < len(q.b) && q.b[q.v+len(w)] == ' '
	switch flattenName(w) {
	case "bearer", "basic", "token", "negotiate", "apikey", "digest":
		return next || q.ask == forAuth, false
	}
	own = q.ask == forAuth && q.sep.opened == 0 && next && runEnd(w, 0, letter|joint) == len(w)
	return own, own
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (e byteRange) onlyIf(yes bool) byteRange {
	if yes {
		return e
	}
	return byteRange{}
}

// refineCategory returns the category of a value that was found by its name. If the whole value has the format of a
// known key, it gets the category of that key, so that a permit for passwords does not release it.
func (f *finder) refineCategory(named Category, val []byte) Category {
	kind := named
	inner := finder{t: f.t, depth: maxDepth}
	inner.scan(val, true, func(s span) {
		if s.start == 0 && s.end == len(val) && isFormatCategory(s.category) {
			kind = s.category
		}
	})
	return kind
}

// isFormatCategory reports whether the format alone determines a category.
func isFormatCategory(c Category) bool {
	switch c {
	case APIKey, CloudKey, JWT, PrivateKey, Webhook, PasswordHash, Cookie:
		return true
	}
	return false
}
