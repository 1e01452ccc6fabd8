package redact

import (
	"bytes"
	"strings"
)

// keyID is the length of an AWS key id; the key itself is twice as long.
const keyID = 20

// strong decides on a word that looks random by the text before it: the name of a service, an unspecific name, or none.
func (f *finder) strong(b []byte, i, j int, kinds class) (extent, Category) {
	if kinds&digit == 0 {
		return extent{}, ""
	}
	for b[j-1] == '.' {
		j--
	}
	w := b[i:j]
	// base64 text without a find; a symbol of D, Rust or C++
	if i < f.blob || len(w) > 1 && w[0] == '_' && bytes.IndexByte([]byte("DRZ"), w[1]) >= 0 {
		return extent{}, ""
	}
	named, signed := f.named(b, i), f.sep.operator || f.sep.opened != 0
	if named == nil && len(w) < 31 {
		return extent{}, ""
	}
	s := shapeOf(w)
	// the key that belongs to the id
	if s.n == 40 && len(named) == keyID && (string(named[:4]) == "AKIA" || string(named[:4]) == "ASIA") {
		return extent{i, j}.when(f.sep.n <= 8 && s.random()), CloudKey
	}
	switch {
	case s.n == 66 && !s.hex && w[0] == '0' && w[1] == 'x' && shapeOf(w[2:]).hex: // a key of secp256k1
		return extent{i, j}, Token
	case s.hex && s.n >= 24 || s.n >= 16 && s.random() || uuid(w):
	default:
		return extent{}, ""
	}
	if s.n < 24 && identifier(w) {
		return extent{}, ""
	}
	if t := tailOf(w); t >= 28 && !s.hex && s.mixed() && joined(w, t) {
		return extent{i, j}, APIKey
	}
	if named == nil {
		return extent{}, ""
	}
	m := parse(named)
	if !signed && !f.t.services[string(m.text[:m.n])] || m.harmless() || len(named) >= 16 && shapeOf(named).random() {
		return extent{}, ""
	}
	if f.t.service(&m) || !s.hex && f.alone(b, &m) && plainToken(w) && bytes.IndexByte(w, '/') < 0 || s.mixed() && !s.hex && s.n >= 32 && plainToken(w) {
		return extent{i, j}, Token
	}
	return extent{}, ""
}

// alone reports whether the value is quoted and follows a single lower-case word at the start of its line.
func (f *finder) alone(b []byte, m *name) bool {
	if f.sep.opened == 0 || f.sep.n != 2 || f.sep.operator || m.parts != 1 || m.n < 3 || m.n != f.last.end-f.last.start {
		return false
	}
	return len(bytes.TrimSpace(lineBefore(b, f.last.start))) == 0
}

// named returns the word that names the one at i. It must be near and on the same line.
func (f *finder) named(b []byte, i int) []byte {
	if n := f.last.end - f.last.start; n <= 0 || n > maxName || f.last.end > i || i-f.last.end > maxName || f.sep.n > 8 || f.sep.lines > 0 {
		return nil
	}
	return f.last.name(b)
}

// plainToken reports whether a word is one piece of base64, or of base64url with few joints, and neither a path nor a
// version.
func plainToken(w []byte) bool {
	s := shapeOf(w)
	return s.others*8 <= s.n && !bytes.ContainsAny(w, ".%") && w[0] != '/' && !bytes.Contains(w, []byte("//"))
}

// tailOf returns the length of the last part of a word.
func tailOf(w []byte) int { return len(w) - 1 - bytes.LastIndexAny(w, "_-./+~%") }

// joined reports whether a word is a short lower-case name, a joint and a random tail of t bytes.
func joined(w []byte, t int) bool {
	head := w[:len(w)-t]
	if len(head) < 3 || len(head) > 24 || head[len(head)-1] != '_' && head[len(head)-1] != '-' {
		return false
	}
	s := shapeOf(head)
	tail := shapeOf(w[len(w)-t:])
	return s.uppers == 0 && s.digits < 3 && tail.mixed() && tail.digits > 2 && !strings.HasPrefix(string(head), "sha") && !strings.HasPrefix(string(head), "md5")
}
