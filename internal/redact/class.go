package redact

// class is a set of roles that a byte can have. A word is a maximal run of bytes of the classes in word. The bytes
// between two words determine how the words are related.
type class uint16

const (
	digit  class = 1 << iota
	upper        // A-Z
	lower        // a-z
	joint        // _ and -
	dot          // .
	slash        // /
	sign         // + ~ %
	blank        // space, tab
	line         // line feed, carriage return
	quote        // " ' `
	stop         // ends an unquoted value: , ; < ) ] } and the backslash
	ascend       // $ and {, which can start a construct
	colon
	oper // = | >
)

const (
	letter = upper | lower
	alnum_ = letter | digit
	word   = alnum_ | joint | dot | slash | sign
	gap    = blank | line
)

// classes is the table that every step of the scan uses.
var classes = func() (t [256]class) {
	for c := range 256 {
		switch {
		case c >= '0' && c <= '9':
			t[c] = digit
		case c >= 'A' && c <= 'Z':
			t[c] = upper
		case c >= 'a' && c <= 'z':
			t[c] = lower
		}
	}
	for _, set := range []struct {
		bytes string
		class class
	}{
		{"_-", joint}, {".", dot}, {"/", slash}, {"+~%", sign}, {" \t\v\f", blank}, {"\n\r", line}, {"\"'`", quote},
		{",;<)]}\\", stop}, {"${", ascend}, {":", colon}, {"=|>", oper},
	} {
		for _, c := range []byte(set.bytes) {
			t[c] = set.class
		}
	}
	return t
}()

// runEnd returns the end of the run of bytes of the classes in set that begins at i.
func runEnd(b []byte, i int, set class) int {
	for i < len(b) && classes[b[i]]&set != 0 {
		i++
	}
	return i
}

// shape describes the appearance of a text, independent of its meaning.
type shape struct {
	n, digits, uppers, lowers, others int
	turns                             int // changes between the kinds of letters and digits
	hex                               bool
}

// tally has for each byte its contribution to a shape: one in the field of its kind, the kind, and whether it is not a
// hex digit.
var tally = func() (t [256]uint64) {
	for c := range 256 {
		kind := uint64(3)
		switch classes[c] {
		case digit:
			kind = 0
		case upper:
			kind = 1
		case lower:
			kind = 2
		}
		t[c] = 1<<(kind*fieldBits) | (kind+1)<<kindShift
		if !hexDigit(byte(c)) {
			t[c] |= 1 << hexShift
		}
	}
	return t
}()

const (
	fieldBits = 14 // four fields of counts
	kindShift = 56 // three bits
	hexShift  = 59
	maxShape  = 8 << 10 // bytes that a shape counts; fewer than a field can hold
)

// shapeOf counts without a branch per byte, because a processor cannot predict branches on random text.
func shapeOf(b []byte) shape {
	b = b[:min(len(b), maxShape)]
	var sum, odd, last uint64
	turns := uint64(0)
	for _, c := range b {
		e := tally[c]
		kind := e >> kindShift & 7
		differs := (kind ^ last) & (kind>>2 - 1) // zero for a byte that is neither letter nor digit
		turns += (differs + 7) >> 3
		last ^= differs
		odd |= e
		sum += e & (1<<kindShift - 1)
	}
	field := func(n int) int { return int(sum >> (n * fieldBits) & (1<<fieldBits - 1)) }
	return shape{n: len(b), digits: field(0), uppers: field(1), lowers: field(2), others: field(3), turns: int(turns),
		hex: odd>>hexShift&1 == 0}
}

func hexDigit(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// isRandom reports whether a text is unlikely to be written by hand: letters and digits, or letters of both cases,
// alternate. In random base62 they do so at six of ten places, in base36 at four, in names at one or two.
func (s shape) isRandom() bool {
	switch {
	case s.n < 8 || s.others > s.n/3 || s.isCamelCase():
		return false
	case s.uppers > 1 && s.lowers > 1:
		return s.turns*3 >= s.n && (s.n >= 10 || s.digits > 0)
	}
	return s.turns*4 >= s.n && s.digits*12 >= s.n && s.digits < s.n-s.others
}

// isCamelCase reports whether a text consists of words in camel case. Their lower-case letters stand in groups of three
// or more; in random text of both cases they stand in ones and twos.
func (s shape) isCamelCase() bool { return s.uppers > 0 && s.lowers > 0 && s.lowers*2 > s.turns*3 }

// isMixedRandom reports whether a text is random with letters of both cases and digits.
func (s shape) isMixedRandom() bool {
	return s.isRandom() && s.uppers > 1 && s.lowers > 1 && s.digits > 1
}

// isUUID reports whether a text has the form of RFC 9562, with any letters and digits, because some services use more
// than sixteen.
func isUUID(b []byte) bool {
	if len(b) != 36 {
		return false
	}
	for i, c := range b {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if classes[c]&alnum_ == 0 {
			return false
		}
	}
	return true
}
