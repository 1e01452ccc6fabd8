package redact

import (
	"bytes"
	"html"
)

const (
	maxEncoded  = 16 << 10 // bytes of a line with encoded signs that are held back and read as one
	maxEncoding = 2        // nested encodings that are decoded
	maxUnit     = 12       // bytes of one encoded sign
)

// encodedFinder finds secrets that are visible only after the signs around them are decoded:
// &quot;password&quot;:&quot;…&quot; in HTML, password%3D… in a URL (RFC 3986, section 2.1), \u003cpassword\u003e… in
// JSON (RFC 8259, section 7), \x22 in JavaScript. The finder also reads the text as it is, so encoded only adds finds.
//
// It processes a line from its first encoded sign on. That part is held back until the line ends.
type encodedFinder struct {
	t    *tables
	next int  // first byte not yet read
	open bool // next is at an encoded sign
	seek int  // the open line does not end before this offset
	more bool // the line was cut at its limit before next
}

func (e *encodedFinder) shiftOffsets(n int) {
	e.next -= n
	e.seek -= n
}

// neededBefore returns how many bytes before next are still needed.
func (e *encodedFinder) neededBefore() int {
	if e.more {
		return maxValue
	}
	return look
}

// scan continues the search and calls add for each find. It returns the first undecided offset.
func (e *encodedFinder) scan(b []byte, final bool, add func(span)) int {
	leads := [...]byteFinder{{c: '%'}, {c: '&'}, {c: '\\'}}
	for {
		if !e.open {
			at, open := nextSign(b, e.next, &leads, final)
			e.next = at
			if at == len(b) || open {
				return at
			}
			e.open, e.seek, e.more = true, at, false
		}
		limit := min(len(b), e.next+maxEncoded)
		end := limit
		if n := bytes.IndexByte(b[e.seek:limit], '\n'); n >= 0 {
			end = e.seek + n + 1
		} else if limit == len(b) && !final {
			e.seek = limit
			return e.next
		}
		from := max(0, e.next-maxValue)
		if !e.more {
			from = e.next - len(lineBefore(b, e.next))
		}
		start := e.next
		e.searchDecoded(b[from:end], nil, maxEncoding, func(s span) {
			// Depending on how the text was split, the part before the first encoded sign may already be written. It
			// must not be part of a find.
			if s.start, s.end = max(s.start+from, start), s.end+from; s.start < s.end {
				add(s)
			}
		})
		e.more = b[end-1] != '\n'
		e.next, e.seek, e.open = end, end, e.more
		if e.open && end == len(b) {
			return end
		}
	}
}

// searchDecoded decodes text by each encoding that has a sign in it, and searches the result. at has the offset in the
// whole text of each byte of text; if it is nil, the offsets are equal.
func (e *encodedFinder) searchDecoded(text []byte, at []int32, depth int, add func(span)) {
	for _, enc := range encodings {
		if !enc.isUsedIn(text) {
			continue
		}
		plain, from := enc.decodeText(text, at)
		words := finder{t: e.t}
		words.scan(plain, true, func(s span) {
			if !Pseudonym(s.category) {
				add(span{int(from[s.start]), int(from[s.end]), s.category})
			}
		})
		if depth > 1 {
			e.searchDecoded(plain, from, depth-1, add)
		}
	}
}

// encoding is one way to encode a sign.
type encoding struct {
	lead  byte
	parse func(b []byte) (sign byte, n int) // n is zero for any other text
}

// encodings lists the encodings of signs. Letters and digits do not need encoding, so programs do not encode them.
var encodings = []encoding{
	{'%', func(b []byte) (byte, int) { return hexSign(b, 1, 3) }},
	{'&', parseEntity},
	{'\\', func(b []byte) (byte, int) {
		switch {
		case len(b) > 3 && b[1] == 'u' && b[2] == '0' && b[3] == '0':
			return hexSign(b, 4, 6)
		case len(b) > 1 && b[1] == 'x':
			return hexSign(b, 2, 4)
		}
		return 0, 0
	}},
}

// hexSign parses two hex digits.
func hexSign(b []byte, from, to int) (byte, int) {
	if len(b) < to {
		return 0, 0
	}
	c := hexNibble(b[from])<<4 | hexNibble(b[from+1])
	if !hexDigit(b[from]) || !hexDigit(b[from+1]) || c >= 0x7f || classes[c]&alnum_ != 0 || c < ' ' &&
		classes[c]&gap == 0 {
		return 0, 0
	}
	return c, to
}

func hexNibble(c byte) byte {
	if c >= 'A' {
		return (c | 0x20 - 'a') + 10
	}
	return c - '0'
}

// parseEntity parses an HTML character reference for a single sign.
func parseEntity(b []byte) (byte, int) {
	n := bytes.IndexByte(b[:min(len(b), maxUnit)], ';')
	if n < 3 {
		return 0, 0
	}
	text := html.UnescapeString(string(b[:n+1]))
	if len(text) != 1 || classes[text[0]]&alnum_ != 0 {
		return 0, 0
	}
	return text[0], n + 1
}

// assigning lists the signs that can separate a name from its value, and those that begin another encoded sign.
const assigning = "\"'=:<>%&\\"

// parseSign returns the sign that is encoded at the start of b.
func (enc *encoding) parseSign(b []byte) (byte, int) {
	if b[0] != enc.lead {
		return 0, 0
	}
	return enc.parse(b)
}

func (enc *encoding) isUsedIn(text []byte) bool {
	for i := 0; ; i++ {
		n := bytes.IndexByte(text[i:], enc.lead)
		if n < 0 {
			return false
		}
		i += n
		if c, n := enc.parseSign(text[i:]); n > 0 && bytes.IndexByte([]byte(assigning), c) >= 0 {
			return true
		}
	}
}

// decodeText returns text with its encoded signs decoded, and the origin of each byte. A last extra element is the end
// of text.
func (enc *encoding) decodeText(text []byte, at []int32) (plain []byte, from []int32) {
	origin := func(i int) int32 {
		if at == nil {
			return int32(i)
		}
		return at[i]
	}
	plain, from = make([]byte, 0, len(text)), make([]int32, 0, len(text)+1)
	for i := 0; i < len(text); {
		c, n := enc.parseSign(text[i:])
		if n == 0 {
			c, n = text[i], 1
		}
		plain, from = append(plain, c), append(from, origin(i))
		i += n
	}
	return plain, append(from, origin(len(text)))
}

// nextSign returns the next offset at or after i of an encoded sign that may separate a name from its value. It is open
// if more bytes are needed to decide. leads caches the positions of the first bytes of signs.
func nextSign(b []byte, i int, leads *[3]byteFinder, final bool) (at int, open bool) {
	for ; i < len(b); i++ {
		for k := range leads {
			leads[k].nextAfter(b, i)
		}
		i = min(leads[0].at, leads[1].at, leads[2].at)
		if i == len(b) {
			break
		}
		if !final && len(b)-i < maxUnit && mayBeSign(b[i:]) {
			return i, true
		}
		for k := range encodings {
			if c, n := encodings[k].parseSign(b[i:]); n > 0 && bytes.IndexByte([]byte(assigning), c) >= 0 {
				return i, false
			}
		}
	}
	return len(b), false
}

// mayBeSign reports whether b is an incomplete encoded sign.
func mayBeSign(b []byte) bool {
	rest := b[1:]
	switch b[0] {
	case '%':
		return len(rest) < 2 && (len(rest) == 0 || hexDigit(rest[0]))
	case '&':
		return len(rest) == 0 || bytes.IndexByte(rest, ';') < 0 &&
			(rest[0] == '#' && runEnd(rest, 1, alnum_) == len(rest) || runEnd(rest, 0, alnum_) == len(rest))
	}
	return len(rest) == 0 || rest[0] == 'u' && len(rest) < 5 && runEnd(rest, 1, digit|letter) == len(rest) ||
		rest[0] == 'x' && len(rest) < 3 && runEnd(rest, 1, digit|letter) == len(rest)
}
