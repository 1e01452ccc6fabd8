package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"bailey"
)

// node is one JSON value and its position, for line and column in errors.
type node struct {
	at      int    // offset of its first byte
	name    string // its key, if it is in an object
	keyAt   int    // offset of the key
	value   any    // nil, bool, string, json.Number, shape
	members []node // of an array or an object, in order
}

type shape uint8

const (
	array shape = iota
	object
)

// jsonParser is JSON that is being parsed. encoding/json alone would accept invalid input: duplicate keys, keys in another
// case, invalid UTF-8.
type jsonParser struct {
	what string // for messages
	b    []byte
	d    *json.Decoder
	n    int // values so far
}

// parseObject reads exactly one object, with nothing but white space around it.
func parseObject(what string, b []byte) (t *jsonParser, root node, err error) {
	t = &jsonParser{what: what, b: b}
	if len(b) > MaxFrame {
		return t, root, bailey.Invalid.Errorf("make it smaller", "%s has more than %d bytes", what, MaxFrame)
	}
	if i := invalidUTF8At(b); i >= 0 {
		return t, root, t.errorAt(i, "this is not UTF-8", "write it in UTF-8")
	}
	t.d = json.NewDecoder(bytes.NewReader(b))
	t.d.UseNumber()
	if root, err = t.readValue(0); err != nil {
		return t, root, err
	}
	if root.value != object {
		return t, root, t.errorAt(root.at, "this is "+root.kindName()+", not an object", "write one JSON object: {…}")
	}
	if rest := bytes.TrimLeft(b[t.d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return t, root, t.errorAt(len(b)-len(rest), "more data follows the object",
			"write one object and nothing after it; write other output to stderr")
	}
	return t, root, nil
}

// invalidUTF8At returns the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8At(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// tokenOffset returns the offset of the next token.
func (t *jsonParser) tokenOffset() int {
	i := int(t.d.InputOffset())
	for i < len(t.b) && strings.IndexByte(" \t\r\n,:", t.b[i]) >= 0 {
		i++
	}
	return i
}

func (t *jsonParser) readValue(depth int) (n node, err error) {
	n.at = t.tokenOffset()
	if t.n++; t.n > maxValues {
		return n, t.errorAt(n.at, fmt.Sprintf("there are more than %d values", maxValues),
			"write less, for example one long text instead of a list")
	}
	token, err := t.d.Token()
	if err != nil {
		return n, t.syntaxError(err)
	}
	delim, ok := token.(json.Delim)
	if !ok {
		n.value = token
		return n, nil
	}
	if depth == maxDepth {
		return n, t.errorAt(n.at, fmt.Sprintf("this is nested deeper than %d", maxDepth), "nest less")
	}
	n.value = array
	var seen map[string]bool
	if delim == '{' {
		n.value, seen = object, map[string]bool{} // an empty map needs no memory
	}
	for t.d.More() {
		m, err := t.readMember(seen, depth+1)
		if err != nil {
			return n, err
		}
		n.members = append(n.members, m)
	}
	if _, err = t.d.Token(); err != nil {
		return n, t.syntaxError(err)
	}
	return n, nil
}

// readMember reads one value of an array, or a key and its value if seen is set.
func (t *jsonParser) readMember(seen map[string]bool, depth int) (m node, err error) {
	if seen == nil {
		return t.readValue(depth)
	}
	at := t.tokenOffset()
	token, err := t.d.Token()
	if err != nil {
		return m, t.syntaxError(err)
	}
	name, _ := token.(string)
	if seen[name] {
		return m, t.errorAt(at, fmt.Sprintf("the key %.64q is there twice", name), "keep one of them")
	}
	seen[name] = true
	m, err = t.readValue(depth)
	m.name, m.keyAt = name, at
	return m, err
}

func (t *jsonParser) syntaxError(err error) error {
	var bad *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), len(bytes.TrimSpace(t.b)) == 0:
		return t.errorAt(len(t.b), "it ends within the object", "write the whole object before the program exits")
	case errors.As(err, &bad):
		return t.errorAt(t.tokenOffset(), "this is not JSON: "+bad.Error(), "write JSON (RFC 8259)")
	}
	return t.errorAt(t.tokenOffset(), "this is not JSON: "+err.Error(), "write JSON (RFC 8259)")
}

// errorAt adds line and column, both from 1, the column in bytes.
func (t *jsonParser) errorAt(at int, message, hint string) error {
	before := t.b[:min(at, len(t.b))]
	line, column := 1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n')
	return bailey.Invalid.Errorf(hint, "%s:%d:%d: %s", t.what, line, column, message)
}

func (n node) kindName() string {
	switch n.value.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	}
	if n.value == array {
		return "an array"
	}
	return "an object"
}

// goValue returns the value in the form of an input of [bailey.Call]: numbers as json.Number.
func (n node) goValue() any {
	switch n.value {
	case array:
		list := make([]any, len(n.members))
		for i, m := range n.members {
			list[i] = m.goValue()
		}
		return list
	case object:
		table := make(map[string]any, len(n.members))
		for _, m := range n.members {
			table[m.name] = m.goValue()
		}
		return table
	}
	return n.value
}

// keyReaders contains a reading function for each key of an object.
type keyReaders map[string]func(node) error

// readObject reads the members of an object in order. A key without a reader is an error, unless others is true.
func (t *jsonParser) readObject(n node, what string, by keyReaders, others bool) error {
	if n.value != object {
		return t.errorAt(n.at, what+" is "+n.kindName()+", not an object", "write {…}")
	}
	for _, m := range n.members {
		read, ok := by[m.name]
		if !ok && !others {
			return t.errorAt(m.keyAt, fmt.Sprintf("%s has no key %.64q", what, m.name),
				"its keys are "+strings.Join(by.sortedNames(), ", "))
		}
		if ok {
			if err := read(m); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r keyReaders) sortedNames() (names []string) {
	for name := range r {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// storeInto returns a reader that stores a value of type T.
func storeInto[T any](t *jsonParser, into *T, want string) func(node) error {
	return func(n node) error {
		v, ok := n.goValue().(T)
		if !ok {
			return t.errorAt(n.at, fmt.Sprintf("%s is %s, not %s", n.name, n.kindName(), want),
				"leave the key out, or set it to "+want)
		}
		*into = v
		return nil
	}
}
