package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// objectKeys holds the keys of one object. A few keys are compared one by one on the walker's stack, which allocates nothing.
// Many keys are held in a map, so that hostile data cannot make the check quadratic.
type objectKeys struct {
	base   int  // index of this object's first key on the walker's stack
	folded bool // keys must be ASCII, and keys that differ only in case are the same
	many   map[string]bool
}

const fewKeys = 40

// addKey records key and reports whether it is new.
func (k *objectKeys) addKey(w *jsonChecker, key []byte) bool {
	own := w.keys[k.base:w.held]
	if k.many == nil && w.held < fewKeys {
		for _, o := range own {
			if bytes.Equal(o, key) || k.folded && len(o) == len(key) && bytes.EqualFold(o, key) {
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
			k.many[k.foldKey(o)] = true
		}
	}
	form := k.foldKey(key)
	if k.many[form] {
		return false
	}
	k.many[form] = true
	return true
}

func (k *objectKeys) foldKey(key []byte) string {
	if k.folded {
		key = bytes.ToLower(key)
	}
	return string(key)
}

// unquoteString resolves the escapes of a string that was checked.
func unquoteString(raw []byte) ([]byte, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return []byte(s), err
}

// plainKey reports whether key is ASCII and is not a reserved name in another case. A reader that ignores case, such as
// encoding/json, would take such a key for the name; it would also match U+017F with s and U+212A with k.
func plainKey(key []byte) bool {
	for _, c := range key {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	for _, name := range []string{"receipt", "cage", "planDigest"} {
		if len(key) == len(name) && strings.EqualFold(string(key), name) {
			return string(key) == name
		}
	}
	return true
}
