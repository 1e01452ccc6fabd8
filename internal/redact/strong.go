package redact

import (
	"bytes"
	"strings"
)

// keyID is the length of an AWS key id; the key itself is twice as long.
const keyID = 20

// findRandomWord decides on a word that looks random by the text before it: the name of a service, an unspecific name, or none.
func (f *finder) findRandomWord(b []byte, i, j int, kinds class) (byteRange, Category) {
	if kinds&digit == 0 {
		return byteRange{}, ""
	}
	for b[j-1] == '.' {
		j--
	}
	w := b[i:j]
	// base64 text without a find; a symbol of D, Rust or C++
	if i < f.blob || len(w) > 1 && w[0] == '_' && bytes.IndexByte([]byte("DRZ"), w[1]) >= 0 {
		return byteRange{}, ""
	}
	named, signed := f.namingWord(b, i), f.sep.operator || f.sep.opened != 0
	if named == nil && len(w) < 31 {
		return byteRange{}, ""
	}
	s := shapeOf(w)
	// the key that belongs to the id
	if s.n == 40 && len(named) == keyID && (string(named[:4]) == "AKIA" || string(named[:4]) == "ASIA") {
		return byteRange{i, j}.onlyIf(f.sep.n <= 8 && s.isRandom()), CloudKey
	}
	switch {
	case s.n == 66 && !s.hex && w[0] == '0' && w[1] == 'x' && shapeOf(w[2:]).hex: // a key of secp256k1
		return byteRange{i, j}, Token
	case s.hex && s.n >= 24 || s.n >= 16 && s.isRandom() || isUUID(w):
	default:
		return byteRange{}, ""
	}
	if s.n < 24 && isIdentifier(w) {
		return byteRange{}, ""
	}
	if t := tailOf(w); t >= 28 && !s.hex && s.isMixedRandom() && hasRandomTail(w, t) {
		return byteRange{i, j}, APIKey
	}
	if named == nil {
		return byteRange{}, ""
	}
	m := parseName(named)
	if !signed && !f.t.services[string(m.text[:m.n])] || m.isHarmless() || len(named) >= 16 &&
		shapeOf(named).isRandom() {
		return byteRange{}, ""
	}
	if f.t.isService(&m) || !s.hex && f.followsLoneWord(b, &m) && plainToken(w) && bytes.IndexByte(w, '/') < 0 ||
		s.isMixedRandom() && !s.hex && s.n >= 32 && plainToken(w) {
		return byteRange{i, j}, Token
	}
	return byteRange{}, ""
}

// followsLoneWord reports whether the value is quoted and follows a single lower-case word at the start of its line.
func (f *finder) followsLoneWord(b []byte, m *parsedName) bool {
	if f.sep.opened == 0 || f.sep.n != 2 || f.sep.operator || m.parts != 1 || m.n < 3 ||
		m.n != f.last.end-f.last.start {
		return false
	}
	return len(bytes.TrimSpace(lineBefore(b, f.last.start))) == 0
}

// namingWord returns the word that names the one at i. It must be near and on the same line.
func (f *finder) namingWord(b []byte, i int) []byte {
	if n := f.last.end - f.last.start; n <= 0 || n > maxName || f.last.end > i || i-f.last.end > maxName ||
		f.sep.n > 8 || f.sep.lines > 0 {
		return nil
	}
	return f.last.nameBytes(b)
}

// plainToken reports whether a word is one piece of base64, or of base64url with few joints, and neither a path nor a
// version.
func plainToken(w []byte) bool {
	s := shapeOf(w)
	return s.others*8 <= s.n && !bytes.ContainsAny(w, ".%") && w[0] != '/' && !bytes.Contains(w, []byte("//"))
}

// tailOf returns the length of the last part of a word.
func tailOf(w []byte) int { return len(w) - 1 - bytes.LastIndexAny(w, "_-./+~%") }

// hasRandomTail reports whether a word is a short lower-case name, a joint and a random tail of t bytes.
func hasRandomTail(w []byte, t int) bool {
	head := w[:len(w)-t]
	if len(head) < 3 || len(head) > 24 || head[len(head)-1] != '_' && head[len(head)-1] != '-' {
		return false
	}
	s := shapeOf(head)
	tail := shapeOf(w[len(w)-t:])
	return s.uppers == 0 && s.digits < 3 && tail.isMixedRandom() && tail.digits > 2 &&
		!strings.HasPrefix(string(head), "sha") && !strings.HasPrefix(string(head), "md5")
}
