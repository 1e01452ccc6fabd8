package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"bailey"
)

// maxDepth bounds nesting, so that checking hostile data needs little stack. It is above the nesting that
// [bailey.InlineCap] bytes of arguments can reach.
const maxDepth = 4096

// checkData checks the data of an entry. It returns the receipt that the data names, if kind requires one, and the
// digest of the plan, if an outcome names one.
func checkData(kind string, data []byte) (receipt bailey.ReceiptID, plan string, err error) {
	if !utf8.Valid(data) {
		return "", "", errors.New("the data is not UTF-8")
	}
	if len(data) == 0 || data[0] != '{' {
		return "", "", errors.New("the data is not an object")
	}
	w := jsonChecker{b: data, paired: kind == KindIntent || kind == KindOutcome}
	if err := w.checkValue(1); err != nil {
		return "", "", fmt.Errorf("the data is malformed at byte %d: %w", w.i, err)
	}
	if w.i != len(data) {
		return "", "", fmt.Errorf("the data has more than one value at byte %d", w.i)
	}
	if w.paired && !validName(w.receipt, 64) {
		return "", "", fmt.Errorf("the %s names no receipt", kind)
	}
	if kind == KindOutcome && w.planned {
		if _, ok := parseHash([]byte(w.plan)); !ok {
			return "", "", errors.New("the outcome's planDigest is not 64 lower-case hexadecimal digits")
		}
		plan = w.plan
	}
	return bailey.ReceiptID(w.receipt), plan, nil
}

// jsonChecker checks one JSON value byte by byte. encoding/json accepts input that an auditor must refuse, such as duplicate
// keys, keys in another case, white space and invalid UTF-8.
type jsonChecker struct {
	b       []byte
	i       int             // index of the current byte
	keys    [fewKeys][]byte // of the open objects, outermost first; an array here needs no heap
	held    int             // how many of keys are in use
	paired  bool            // the outermost object is an intent or an outcome
	receipt string          // the value of its member "receipt"
	caged   bool            // its current member is "cage"
	planned bool            // the cage has a member "planDigest"
	plan    string          // the value of that member
}

var errSyntax = errors.New("the data is not JSON without white space")

// peekByte returns the current byte, or 0 at the end. NUL is not valid anywhere in JSON.
func (w *jsonChecker) peekByte() byte {
	if w.i < len(w.b) {
		return w.b[w.i]
	}
	return 0
}

func (w *jsonChecker) acceptByte(c byte) bool {
	if w.peekByte() != c {
		return false
	}
	w.i++
	return true
}

func (w *jsonChecker) checkValue(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	switch c := w.peekByte(); {
	case c == '{':
		return w.checkObject(depth)
	case c == '[':
		return w.checkArray(depth)
	case c == '"':
		_, err := w.checkString()
		return err
	case c == '-' || c >= '0' && c <= '9':
		return w.checkNumber()
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(w.b[w.i:], []byte(word)) {
			w.i += len(word)
			return nil
		}
	}
	return errSyntax
}

func (w *jsonChecker) checkArray(depth int) error {
	w.i++
	if w.acceptByte(']') {
		return nil
	}
	for {
		if err := w.checkValue(depth + 1); err != nil {
			return err
		}
		if w.acceptByte(']') {
			return nil
		}
		if !w.acceptByte(',') {
			return errSyntax
		}
	}
}

func (w *jsonChecker) checkObject(depth int) error {
	w.i++
	if w.acceptByte('}') {
		return nil
	}
	seen := objectKeys{base: w.held, folded: w.paired && (depth == 1 || depth == 2 && w.caged)}
	defer func() { w.held = seen.base }()
	for {
		if err := w.checkMember(depth, &seen); err != nil {
			return err
		}
		if w.acceptByte('}') {
			return nil
		}
		if !w.acceptByte(',') {
			return errSyntax
		}
	}
}

func (w *jsonChecker) checkMember(depth int, seen *objectKeys) error {
	raw, err := w.checkString()
	if err != nil {
		return err
	}
	key, err := unquoteString(raw)
	if err != nil {
		return err
	}
	if seen.folded && !plainKey(key) {
		return fmt.Errorf("the key %.80q is not ASCII, or is a known key in another case", key)
	}
	switch {
	case w.paired && depth == 1 && string(key) == "receipt":
		w.receipt, w.caged = w.peekString(), false
	case w.paired && depth == 1:
		w.caged = string(key) == "cage"
	case w.caged && depth == 2 && string(key) == "planDigest":
		w.plan, w.planned = w.peekString(), true
	}
	if !seen.addKey(w, key) {
		return fmt.Errorf("the key %.80q is there twice", key)
	}
	if !w.acceptByte(':') {
		return errSyntax
	}
	return w.checkValue(depth + 1)
}

// peekString returns the raw text between the quotes of the string that follows the colon, up to the first quote. It returns
// "" if the value is not a string. An escape leaves a backslash in the result, which no valid receipt or digest
// contains.
func (w *jsonChecker) peekString() string {
	s, ok := bytes.CutPrefix(w.b[w.i:], []byte(`:"`))
	if !ok {
		return ""
	}
	s, _, _ = bytes.Cut(s, []byte(`"`))
	return string(s)
}

// checkString checks the current string and returns it with its quotes.
func (w *jsonChecker) checkString() ([]byte, error) {
	start := w.i
	if !w.acceptByte('"') {
		return nil, errSyntax
	}
	for {
		for w.i < len(w.b) && w.b[w.i] >= 0x20 && w.b[w.i] != '"' && w.b[w.i] != '\\' {
			w.i++
		}
		switch w.peekByte() {
		case '"':
			w.i++
			return w.b[start:w.i], nil
		case '\\':
			if err := w.checkEscape(); err != nil {
				return nil, err
			}
		default:
			return nil, errSyntax
		}
	}
}

func (w *jsonChecker) checkEscape() error {
	w.i++
	c := w.peekByte()
	w.i++
	if c != 'u' {
		if c == 0 || !bytes.ContainsRune([]byte(`"\/bfnrt`), rune(c)) {
			return errSyntax
		}
		return nil
	}
	for range 4 {
		if c := w.peekByte(); !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return errSyntax
		}
		w.i++
	}
	return nil
}

func (w *jsonChecker) checkNumber() error {
	w.acceptByte('-')
	if !w.acceptByte('0') && !w.skipDigits() {
		return errSyntax
	}
	if w.acceptByte('.') && !w.skipDigits() {
		return errSyntax
	}
	if w.acceptByte('e') || w.acceptByte('E') {
		_ = w.acceptByte('+') || w.acceptByte('-')
		if !w.skipDigits() {
			return errSyntax
		}
	}
	return nil
}

func (w *jsonChecker) skipDigits() bool {
	start := w.i
	for c := w.peekByte(); c >= '0' && c <= '9'; c = w.peekByte() {
		w.i++
	}
	return w.i > start
}

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
