package audit

import (
	"bytes"
	"encoding/json"
	"unicode"
	"unicode/utf8"
)

// keys are the keys of one object. Few are looked for one by one on the walker's stack, which allocates
// nothing; many in a map, so that hostile data cannot make the check quadratic.
type keys struct {
	base   int  // where this object's keys begin on the walker's stack
	folded bool // keys that differ in case alone are the same
	many   map[string]bool
}

const fewKeys = 40

// add tells whether key is new.
func (k *keys) add(w *walker, key []byte) bool {
	own := w.keys[k.base:w.held]
	if k.many == nil && w.held < fewKeys {
		for _, o := range own {
			if bytes.Equal(o, key) || k.folded && mayFold(o, key) && bytes.EqualFold(o, key) {
				return false
			}
		}
		w.keys[w.held] = key
		w.held++
		return true
	}
	if k.many == nil {
		k.many = make(map[string]bool)
		for _, o := range own {
			k.many[k.form(o)] = true
		}
	}
	form := k.form(key)
	if k.many[form] {
		return false
	}
	k.many[form] = true
	return true
}

// mayFold tells cheaply of most keys that they differ in more than case: by their first letters, in ASCII.
func mayFold(a, b []byte) bool {
	return len(a) == 0 || len(b) == 0 || a[0]|b[0] >= utf8.RuneSelf || a[0]|0x20 == b[0]|0x20
}

func (k *keys) form(key []byte) string {
	if k.folded {
		key = bytes.Map(fold, key)
	}
	return string(key)
}

// unquote resolves the escapes of a checked string.
func unquote(raw []byte) ([]byte, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return []byte(s), err
}

// fold maps the runes that differ in case alone to one of them, as bytes.EqualFold compares them and
// encoding/json matches a key to a field: U+017F and U+212A are among those for s and k.
func fold(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}
