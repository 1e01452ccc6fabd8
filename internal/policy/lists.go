package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"bailey"
)

// Listed is one entry of a client's lists of permissions, as Claude Code has them: Tool or Tool(pattern).
type Listed struct {
	List  string `json:"list"` // allow, ask, deny
	Entry string `json:"entry"`
}

// Lists are what a file says of permissions.
type Lists struct {
	Name    string
	Entries []Listed
	Left    []string // settings beside the lists, which no rule can stand for
}

// Bounds on a file of lists.
const (
	maxLists   = 1 << 20 // bytes
	maxEntries = 10_000
	maxEntry   = 4096 // bytes
	maxNested  = 32   // objects and arrays of JSON
)

// ReadLists reads a settings file of Claude Code, or a list with one Tool(pattern) on a line, which allows unless
// "ask" or "deny" stands before it. What is malformed in any way is refused whole: a deny that is overlooked allows.
func ReadLists(name string, data []byte) (Lists, error) {
	l := Lists{Name: name}
	err := l.read(data)
	if err != nil {
		return Lists{}, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%s: %v", commentLine(name), err),
			Hint: "it wants the settings.json of Claude Code, or one Tool(pattern) a line"}
	}
	return l, nil
}

func (l *Lists) read(data []byte) error {
	switch {
	case len(data) > maxLists:
		return fmt.Errorf("the file is larger than %d bytes", maxLists)
	case !utf8.Valid(data):
		return errors.New("it is not UTF-8")
	case bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")):
		return l.settings(data)
	}
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		e := Listed{"allow", line}
		if word, rest, ok := strings.Cut(line, " "); ok && (word == "allow" || word == "ask" || word == "deny") {
			e = Listed{word, strings.TrimSpace(rest)}
		}
		if _, _, ok := e.tool(); !ok {
			return fmt.Errorf("line %d is no Tool(pattern)", i+1)
		}
		if err := l.add(e); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lists) add(e Listed) error {
	if len(l.Entries) == maxEntries || len(e.Entry) > maxEntry {
		return fmt.Errorf("it has more than %d entries, or one longer than %d bytes", maxEntries, maxEntry)
	}
	l.Entries = append(l.Entries, e)
	return nil
}

// tool takes an entry apart.
func (e Listed) tool() (name, pattern string, ok bool) {
	name, rest, found := strings.Cut(e.Entry, "(")
	if !toolForm().MatchString(name) {
		return "", "", false
	}
	pattern, closed := strings.CutSuffix(rest, ")")
	return name, pattern, found == closed
}

var toolForm = lazy(`^[A-Za-z][A-Za-z0-9_*.-]{0,127}$`)

// settings reads the permissions of a settings file. Its other settings are none of ours.
func (l *Lists) settings(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := strictValue(d, 0)
	if err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something stands behind the JSON object")
	}
	top := v.([]member)
	for _, m := range top {
		if m.key == "permissions" {
			list, ok := m.value.([]member)
			if !ok {
				return errors.New("permissions is no object")
			}
			return l.permissions(list)
		}
		if strings.EqualFold(m.key, "permissions") {
			return fmt.Errorf("the key %q is not written permissions", m.key)
		}
	}
	return errors.New("it holds no permissions")
}

func (l *Lists) permissions(list []member) error {
	for _, m := range list {
		if m.key != "allow" && m.key != "ask" && m.key != "deny" {
			text, _ := json.Marshal(plainValue(m.value))
			l.Left = append(l.Left, fmt.Sprintf("%s %s", m.key, text))
			continue
		}
		entries, ok := m.value.([]any)
		if !ok {
			return fmt.Errorf("permissions.%s is no array", m.key)
		}
		for i, v := range entries {
			s, ok := v.(string)
			if !ok {
				return fmt.Errorf("permissions.%s[%d] is no string", m.key, i)
			}
			if err := l.add(Listed{m.key, s}); err != nil {
				return err
			}
		}
	}
	return nil
}

// member is a key of a JSON object with its value.
type member struct {
	key   string
	value any
}

// strictValue reads a value and refuses a key that stands twice in an object: programs differ on which one counts.
func strictValue(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("it is no JSON: %w", err)
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if depth == maxNested {
		return nil, fmt.Errorf("it nests deeper than %d", maxNested)
	}
	list, object, seen := []any{}, []member{}, map[string]bool{}
	for d.More() {
		key := ""
		if delim == '{' {
			k, err := d.Token()
			if err != nil {
				return nil, fmt.Errorf("it is no JSON: %w", err)
			}
			if key = k.(string); seen[key] {
				return nil, fmt.Errorf("the key %q stands twice", key)
			}
			seen[key] = true
		}
		v, err := strictValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		list, object = append(list, v), append(object, member{key, v})
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("it is no JSON: %w", err)
	}
	if delim == '{' {
		return object, nil
	}
	return list, nil
}

// plainValue is a value as encoding/json writes it.
func plainValue(v any) any {
	switch v := v.(type) {
	case []member:
		m := map[string]any{}
		for _, e := range v {
			m[e.key] = plainValue(e.value)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = plainValue(e)
		}
		return list
	}
	return v
}
