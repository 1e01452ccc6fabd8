package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bailey"
	"bailey/internal/localapi/apitype"
)

// A jsonEntry is one entry of Bailey in a JSON file. The rest of the file is not changed.
type jsonEntry struct {
	keys []string // path from the top to the entry; the last key is its name, or if list is set, the name of the array
	list bool
	// For the file and for each key: how much Bailey owns if that key was missing. The last element is the entry alone.
	made  []apitype.Added
	noun  string // describes the entry
	value func(command string) any
	older func(command string) any // the form that an earlier version wrote, which is undone too; nil if there was none
}

// entryJSON returns the entry as JSON on one line.
func (e jsonEntry) entryJSON(command string) json.RawMessage {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.Encode(e.value(command)) // cannot fail for structs of strings
	return bytes.TrimSpace(out.Bytes())
}

// nestedJSON returns the entry inside the objects of the keys from depth on.
func (e jsonEntry) nestedJSON(depth int, command string) json.RawMessage {
	text := e.entryJSON(command)
	if e.list {
		text = fmt.Appendf(nil, "[%s]", text)
	}
	for _, key := range slices.Backward(e.keys[depth:]) {
		text = fmt.Appendf(nil, "{%q:%s}", key, text)
	}
	return text
}

// nestingDepth returns the number of objects and arrays around the entry, including the top level.
func (e jsonEntry) nestingDepth() int {
	if e.list {
		return len(e.keys) + 1
	}
	return len(e.keys)
}

// addEntry returns old with the entry added. old is nil if the file does not exist. If the same entry exists, add returns
// old and "".
func (e jsonEntry) addEntry(old []byte, command string) ([]byte, apitype.Added, error) {
	if old == nil {
		var out bytes.Buffer
		err := json.Indent(&out, e.nestedJSON(0, command), "", "  ")
		return append(out.Bytes(), '\n'), e.made[0], err
	}
	path, err := e.walkKeys(old)
	if err != nil {
		return nil, "", err
	}
	n := len(path)
	last := path[n-1]
	if n < e.nestingDepth() {
		return last.insertMember(old, e.keys[n-1], e.nestedJSON(n, command)), e.made[n], nil
	}
	have, ok := e.findEntry(last, old, command)
	switch {
	case ok && sameJSON(have.rawJSON(old), e.entryJSON(command)):
		return old, "", nil
	case ok:
		return nil, "", bailey.Conflict.New("it has "+e.noun+" already, and another one",
			"bailey init with --undo removes it if init wrote it; otherwise remove it by hand, then init again")
	case e.list:
		return last.insertMember(old, "", e.entryJSON(command)), e.made[len(e.made)-1], nil
	}
	return last.insertMember(old, e.keys[n-1], e.entryJSON(command)), e.made[len(e.made)-1], nil
}

// removeEntry returns old without the added text, or nil if the file must be removed.
func (e jsonEntry) removeEntry(old []byte, command string, what apitype.Added) ([]byte, error) {
	path, err := e.walkKeys(old)
	if err != nil {
		return nil, err
	}
	if len(path) < e.nestingDepth() {
		return nil, e.missingError()
	}
	last := path[len(path)-1]
	have, ok := e.findEntry(last, old, command)
	if !ok && e.older != nil {
		e.value = e.older
		have, ok = e.findEntry(last, old, command)
	}
	switch {
	case !ok:
		return nil, e.missingError()
	case !sameJSON(have.rawJSON(old), e.entryJSON(command)):
		return nil, changedSince(e.noun)
	}
	now := last.removeMember(old, have)
	ours := slices.Index(e.made, what) // all deeper levels were added with it
	for n := e.nestingDepth() - 1; n >= ours && ours >= 0; n-- {
		if path, err = e.walkKeys(now); err != nil || len(path) <= n || len(path[n].members) > 0 {
			return now, err
		}
		if n == 0 {
			return nil, nil
		}
		m, _ := path[n-1].findMember(e.keys[n-1])
		now = path[n-1].removeMember(now, m)
	}
	return now, nil
}

// findEntry returns the entry in the object or array that contains it. An object is searched by name, an array by value.
func (e jsonEntry) findEntry(in *jsonObject, b []byte, command string) (jsonMember, bool) {
	if !e.list {
		return in.findMember(e.keys[len(e.keys)-1])
	}
	text := e.entryJSON(command)
	i := slices.IndexFunc(in.members, func(m jsonMember) bool { return sameJSON(m.rawJSON(b), text) })
	if i < 0 {
		return jsonMember{}, false
	}
	return in.members[i], true
}

func (e jsonEntry) missingError() error {
	return bailey.NotFound.New("it no longer has "+e.noun, "there is nothing to undo")
}

func changedSince(noun string) error {
	return bailey.Conflict.New(noun+" in it is no longer what init wrote", "remove it by hand")
}

func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// walkKeys returns the file's object and those on the path of the keys, as far as they exist.
func (e jsonEntry) walkKeys(b []byte) ([]*jsonObject, error) {
	start := len(b) - len(bytes.TrimLeft(b, " \t\r\n"))
	switch {
	case bytes.HasPrefix(b, []byte("\xef\xbb\xbf")):
		return nil, malformedError("it begins with a byte order mark, which is no JSON")
	case !json.Valid(b) && (bytes.Contains(b, []byte("//")) || bytes.Contains(b, []byte("/*"))):
		return nil, malformedError("it is not a JSON object: comments are none")
	case !json.Valid(b) || b[start] != '{':
		return nil, malformedError("it is not a JSON object")
	}
	top, err := objectAt(b, start)
	if err != nil {
		return nil, err
	}
	if len(top.members) > 0 {
		lead := string(b[top.open+1 : top.members[0].name])
		if i := strings.LastIndexByte(lead, '\n'); i >= 0 && lead[i+1:] != "" {
			top.unit = lead[i+1:]
		}
	}
	path := []*jsonObject{top}
	for n, key := range e.keys {
		at := path[n]
		if twice := slices.DeleteFunc(slices.Clone(at.members),
			func(m jsonMember) bool { return m.key != key }); len(twice) > 1 {
			return nil, malformedError(fmt.Sprintf("it has %q twice", key))
		}
		m, ok := at.findMember(key)
		if !ok || n+1 == e.nestingDepth() {
			break
		}
		open, kind := byte('{'), "an object"
		if e.list && n+1 == len(e.keys) {
			open, kind = '[', "a list"
		}
		if b[m.value] != open {
			return nil, malformedError(key + " in it is not " + kind)
		}
		next, err := objectAt(b, m.value)
		if err != nil {
			return nil, err
		}
		next.unit = top.unit
		path = append(path, next)
	}
	return path, nil
}

func malformedError(why string) error {
	return bailey.Invalid.New(why, "correct the file, then init again; it was not touched")
}

// jsonObject is the position of a JSON object or array in a text, as offsets in bytes.
type jsonObject struct {
	open, close int    // offsets of the braces or brackets
	unit        string // one level of indentation
	members     []jsonMember
}

// jsonMember is a member of an object, or an element of an array, which has no key.
type jsonMember struct {
	key             string
	name, value, to int // offsets of the key's quote, of the value, and of its end
}

func (m jsonMember) rawJSON(b []byte) []byte { return b[m.value:m.to] }

// objectAt parses the members of the object or array that begins at open. b must be valid JSON.
func objectAt(b []byte, open int) (*jsonObject, error) {
	o := &jsonObject{open: open, unit: "  "}
	dec := json.NewDecoder(bytes.NewReader(b[open:]))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	for dec.More() {
		m := jsonMember{}
		if b[open] == '{' {
			from := open + int(dec.InputOffset())
			m.name = from + bytes.IndexByte(b[from:], '"')
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			m.key, _ = key.(string)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, err
		}
		m.to = open + int(dec.InputOffset())
		m.value = m.to - len(raw)
		if b[open] == '[' {
			m.name = m.value
		}
		o.members = append(o.members, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	o.close = open + int(dec.InputOffset()) - 1
	return o, nil
}

func (o *jsonObject) findMember(key string) (jsonMember, bool) {
	i := slices.IndexFunc(o.members, func(m jsonMember) bool { return m.key == key })
	if i < 0 {
		return jsonMember{}, false
	}
	return o.members[i], true
}

// insertMember adds a member at the end, in the style of the existing members: one per line, or all on one line. remove
// undoes it byte for byte.
func (o *jsonObject) insertMember(b []byte, key string, value json.RawMessage) []byte {
	at, comma, lead := o.open+1, "", ""
	if n := len(o.members); n > 0 {
		at, comma, lead = o.members[n-1].to, ",", string(b[o.open+1:o.members[0].name])
	} else if space := string(b[o.open+1 : o.close]); strings.Contains(space, "\n") {
		lead = strings.TrimRight(space, " \t") + space[strings.LastIndexByte(space, '\n')+1:] + o.unit
	}
	name, colon := "", ""
	if b[o.open] == '{' {
		name, colon = strconv.Quote(key)+":", " "
	}
	text := name + string(value)
	if i := strings.LastIndexByte(lead, '\n'); i >= 0 {
		var pretty bytes.Buffer
		if json.Indent(&pretty, value, lead[i+1:], o.unit) == nil {
			text = name + colon + pretty.String()
		}
	}
	return slices.Concat(b[:at], []byte(comma+lead+text), b[at:])
}

// removeMember deletes a member, with the comma and the space that belong to it.
func (o *jsonObject) removeMember(b []byte, gone jsonMember) []byte {
	i := slices.Index(o.members, gone)
	from, to := o.open+1, o.members[i].to
	switch {
	case i > 0:
		from = o.members[i-1].to
	case len(o.members) > 1:
		from, to = o.members[0].name, o.members[1].name
	}
	return slices.Concat(b[:from], b[to:])
}
