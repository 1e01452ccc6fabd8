package audit

import (
	"bytes"
	"errors"
	"fmt"
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
	w := walker{b: data, paired: kind == KindIntent || kind == KindOutcome}
	if err := w.value(1); err != nil {
		return "", "", fmt.Errorf("the data, byte %d: %w", w.i, err)
	}
	if w.i != len(data) {
		return "", "", fmt.Errorf("the data, byte %d: more than one value", w.i)
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

// walker checks one JSON value byte by byte. encoding/json accepts input that an auditor must refuse, such as duplicate
// keys, keys in another case, white space and invalid UTF-8.
type walker struct {
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

var errSyntax = errors.New("not JSON without white space")

// peek returns the current byte, or 0 at the end. NUL is not valid anywhere in JSON.
func (w *walker) peek() byte {
	if w.i < len(w.b) {
		return w.b[w.i]
	}
	return 0
}

func (w *walker) take(c byte) bool {
	if w.peek() != c {
		return false
	}
	w.i++
	return true
}

func (w *walker) value(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	switch c := w.peek(); {
	case c == '{':
		return w.object(depth)
	case c == '[':
		return w.array(depth)
	case c == '"':
		_, err := w.str()
		return err
	case c == '-' || c >= '0' && c <= '9':
		return w.number()
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(w.b[w.i:], []byte(word)) {
			w.i += len(word)
			return nil
		}
	}
	return errSyntax
}

func (w *walker) array(depth int) error {
	w.i++
	if w.take(']') {
		return nil
	}
	for {
		if err := w.value(depth + 1); err != nil {
			return err
		}
		if w.take(']') {
			return nil
		}
		if !w.take(',') {
			return errSyntax
		}
	}
}

func (w *walker) object(depth int) error {
	w.i++
	if w.take('}') {
		return nil
	}
	seen := keys{base: w.held, folded: w.paired && (depth == 1 || depth == 2 && w.caged)}
	defer func() { w.held = seen.base }()
	for {
		if err := w.member(depth, &seen); err != nil {
			return err
		}
		if w.take('}') {
			return nil
		}
		if !w.take(',') {
			return errSyntax
		}
	}
}

func (w *walker) member(depth int, seen *keys) error {
	raw, err := w.str()
	if err != nil {
		return err
	}
	key, err := unquote(raw)
	if err != nil {
		return err
	}
	if seen.folded && !plainKey(key) {
		return fmt.Errorf("the key %.80q is not ASCII, or one of ours in another case", key)
	}
	switch {
	case w.paired && depth == 1 && string(key) == "receipt":
		w.receipt, w.caged = w.plain(), false
	case w.paired && depth == 1:
		w.caged = string(key) == "cage"
	case w.caged && depth == 2 && string(key) == "planDigest":
		w.plan, w.planned = w.plain(), true
	}
	if !seen.add(w, key) {
		return fmt.Errorf("the key %.80q stands twice", key)
	}
	if !w.take(':') {
		return errSyntax
	}
	return w.value(depth + 1)
}

// plain returns the raw text between the quotes of the string that follows the colon, up to the first quote. It returns
// "" if the value is not a string. An escape leaves a backslash in the result, which no valid receipt or digest
// contains.
func (w *walker) plain() string {
	s, ok := bytes.CutPrefix(w.b[w.i:], []byte(`:"`))
	if !ok {
		return ""
	}
	s, _, _ = bytes.Cut(s, []byte(`"`))
	return string(s)
}

// str checks the current string and returns it with its quotes.
func (w *walker) str() ([]byte, error) {
	start := w.i
	if !w.take('"') {
		return nil, errSyntax
	}
	for {
		for w.i < len(w.b) && w.b[w.i] >= 0x20 && w.b[w.i] != '"' && w.b[w.i] != '\\' {
			w.i++
		}
		switch w.peek() {
		case '"':
			w.i++
			return w.b[start:w.i], nil
		case '\\':
			if err := w.escape(); err != nil {
				return nil, err
			}
		default:
			return nil, errSyntax
		}
	}
}

func (w *walker) escape() error {
	w.i++
	c := w.peek()
	w.i++
	if c != 'u' {
		if c == 0 || !bytes.ContainsRune([]byte(`"\/bfnrt`), rune(c)) {
			return errSyntax
		}
		return nil
	}
	for range 4 {
		if c := w.peek(); !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return errSyntax
		}
		w.i++
	}
	return nil
}

func (w *walker) number() error {
	w.take('-')
	if !w.take('0') && !w.digits() {
		return errSyntax
	}
	if w.take('.') && !w.digits() {
		return errSyntax
	}
	if w.take('e') || w.take('E') {
		_ = w.take('+') || w.take('-')
		if !w.digits() {
			return errSyntax
		}
	}
	return nil
}

func (w *walker) digits() bool {
	start := w.i
	for c := w.peek(); c >= '0' && c <= '9'; c = w.peek() {
		w.i++
	}
	return w.i > start
}
