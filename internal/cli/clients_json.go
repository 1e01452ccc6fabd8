package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tailscale/hujson"

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
	key, text, made := e.keys[min(n, len(e.keys))-1], e.entryJSON(command), e.made[len(e.made)-1]
	if n < e.nestingDepth() {
		text, made = e.nestedJSON(n, command), e.made[n]
	} else if i := e.findEntry(path[n-1], command); i >= 0 {
		if sameJSON(membersOf(path[n-1])[i].value.Pack(), text) {
			return old, "", nil
		}
		return nil, "", bailey.Conflict.New("it has "+e.noun+" already, with other settings",
			"run bailey init with --undo if init wrote it, or remove it by hand; then run init again")
	}
	insertMember(path[n-1], key, text, indentUnit(path[0]))
	return path[0].Pack(), made, nil
}

// removeEntry returns old without the added text, or nil if the file must be removed.
func (e jsonEntry) removeEntry(old []byte, command string, what apitype.Added) ([]byte, error) {
	path, err := e.walkKeys(old)
	if err != nil {
		return nil, err
	}
	gone := bailey.NotFound.New("it no longer has "+e.noun, "nothing to undo")
	if len(path) < e.nestingDepth() {
		return nil, gone
	}
	last := path[len(path)-1]
	i := e.findEntry(last, command)
	if i < 0 && e.older != nil {
		e.value = e.older
		i = e.findEntry(last, command)
	}
	switch {
	case i < 0:
		return nil, gone
	case !sameJSON(membersOf(last)[i].value.Pack(), e.entryJSON(command)):
		return nil, changedSince(e.noun)
	}
	removeMember(last, i)
	ours := slices.Index(e.made, what) // all deeper levels were added with it
	for n := e.nestingDepth() - 1; n >= ours && ours >= 0 && len(membersOf(path[n])) == 0; n-- {
		if n == 0 {
			return nil, nil
		}
		removeMember(path[n-1], findMember(path[n-1], e.keys[n-1]))
	}
	return path[0].Pack(), nil
}

// findEntry returns the index of the entry in the object or array that contains it, or -1. An object is searched by name,
// an array by value.
func (e jsonEntry) findEntry(in *hujson.Value, command string) int {
	if !e.list {
		return findMember(in, e.keys[len(e.keys)-1])
	}
	text := e.entryJSON(command)
	return slices.IndexFunc(membersOf(in), func(m jsonMember) bool { return sameJSON(m.value.Pack(), text) })
}

func changedSince(noun string) error {
	return bailey.Conflict.New(noun+" in it is no longer what init wrote", "remove it by hand")
}

func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// walkKeys returns the file and the objects on the path of the keys, as far as they exist. Not all clients accept
// comments, so a file with comments is refused.
func (e jsonEntry) walkKeys(b []byte) ([]*hujson.Value, error) {
	switch {
	case bytes.HasPrefix(b, []byte("\xef\xbb\xbf")):
		return nil, malformedError("it begins with a byte order mark, which JSON does not allow")
	case !json.Valid(b) && (bytes.Contains(b, []byte("//")) || bytes.Contains(b, []byte("/*"))):
		return nil, malformedError("it is not a JSON object; comments are not allowed")
	case !json.Valid(b): // also limits the nesting for the recursive parser
		return nil, malformedError("it is not a JSON object")
	}
	file, err := hujson.Parse(bytes.Clone(b))
	if err != nil || file.Value.Kind() != '{' {
		return nil, malformedError("it is not a JSON object")
	}
	path := []*hujson.Value{&file}
	for n, key := range e.keys {
		named := slices.DeleteFunc(membersOf(path[n]), func(m jsonMember) bool { return m.key != key })
		switch {
		case len(named) > 1:
			return nil, malformedError(fmt.Sprintf("it has %q twice", key))
		case len(named) == 0 || n+1 == e.nestingDepth():
			return path, nil
		}
		want, kind := hujson.Kind('{'), "an object"
		if e.list && n+1 == len(e.keys) {
			want, kind = '[', "a list"
		}
		if named[0].value.Value.Kind() != want {
			return nil, malformedError(key + " in it is not " + kind)
		}
		path = append(path, named[0].value)
	}
	return path, nil
}

func malformedError(why string) error {
	return bailey.Invalid.New(why, "correct the file, then run init again; it was not changed")
}

// jsonMember is a member of an object, or an element of an array, which has no key.
type jsonMember struct {
	key   string
	lead  *hujson.Extra // the white space before it
	value *hujson.Value
}

func membersOf(in *hujson.Value) (list []jsonMember) {
	switch v := in.Value.(type) {
	case *hujson.Object:
		for i := range v.Members {
			m := &v.Members[i]
			list = append(list, jsonMember{m.Name.Value.(hujson.Literal).String(), &m.Name.BeforeExtra, &m.Value})
		}
	case *hujson.Array:
		for i := range v.Elements {
			list = append(list, jsonMember{"", &v.Elements[i].BeforeExtra, &v.Elements[i]})
		}
	}
	return list
}

func findMember(in *hujson.Value, key string) int {
	return slices.IndexFunc(membersOf(in), func(m jsonMember) bool { return m.key == key })
}

// lastIndent returns the indentation after the last line break in white space.
func lastIndent(space []byte) (string, bool) {
	i := bytes.LastIndexByte(space, '\n')
	return string(space[i+1:]), i >= 0
}

// indentUnit returns one level of indentation of a file.
func indentUnit(file *hujson.Value) string {
	if list := membersOf(file); len(list) > 0 {
		if unit, ok := lastIndent(*list[0].lead); ok && unit != "" {
			return unit
		}
	}
	return "  "
}

// insertMember adds a member at the end, in the style of the existing members: one per line, or all on one line.
// removeMember undoes it byte for byte.
func insertMember(in *hujson.Value, key string, text json.RawMessage, unit string) {
	var space, gap hujson.Extra
	switch v := in.Value.(type) {
	case *hujson.Object:
		space, gap = v.AfterExtra, hujson.Extra(" ")
		v.Members = append(v.Members, hujson.ObjectMember{Name: hujson.Value{Value: hujson.String(key)}})
	case *hujson.Array:
		space = v.AfterExtra
		v.Elements = append(v.Elements, hujson.ArrayElement{})
	}
	list := membersOf(in)
	added, lead := list[len(list)-1], *list[0].lead
	if _, ok := lastIndent(space); ok && len(list) == 1 {
		lead = slices.Concat(space, hujson.Extra(unit))
	}
	if indent, ok := lastIndent(lead); ok {
		var pretty bytes.Buffer
		if json.Indent(&pretty, text, indent, unit) == nil {
			text, added.value.BeforeExtra = pretty.Bytes(), gap
		}
	}
	added.value.Value, *added.lead = hujson.Literal(text), lead
}

// removeMember deletes a member, with the comma and the space that belong to it.
func removeMember(in *hujson.Value, i int) {
	list := membersOf(in)
	switch {
	case i > 0:
		list[i-1].value.AfterExtra = list[i].value.AfterExtra
	case len(list) > 1:
		*list[1].lead = *list[0].lead
	}
	switch v := in.Value.(type) {
	case *hujson.Object:
		v.Members = slices.Delete(v.Members, i, i+1)
	case *hujson.Array:
		v.Elements = slices.Delete(v.Elements, i, i+1)
	}
}
