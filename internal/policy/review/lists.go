package review

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"bailey"
)

// Listed is one entry of a client's permission lists in the form of Claude Code: Tool or Tool(pattern).
type Listed struct {
	List  string `json:"list"` // allow, ask, deny
	Entry string `json:"entry"`
}

// Lists is the content of a permissions file.
type Lists struct {
	Name    string
	Entries []Listed
	Left    []string // other settings, which no rule can represent
}

// Limits of a permissions file.
const (
	maxLists   = 1 << 20 // bytes
	maxEntries = 10_000
	maxEntry   = 4096 // bytes
	maxNested  = 32   // nested JSON objects and arrays
)

// ReadLists parses a settings file of Claude Code, or a list with one Tool(pattern) per line. A line allows unless it
// starts with "ask" or "deny". If any part is malformed, the whole file is refused, because a missed deny would allow.
func ReadLists(name string, data []byte) (Lists, error) {
	l := Lists{Name: name}
	err := l.parseFile(data)
	if err != nil {
		return Lists{}, bailey.Invalid.Errorf("it wants the settings.json of Claude Code, or one Tool(pattern) a line",
			"%s: %v", commentLine(name), err)
	}
	return l, nil
}

func (l *Lists) parseFile(data []byte) error {
	switch {
	case len(data) > maxLists:
		return fmt.Errorf("the file is larger than %d bytes", maxLists)
	case !utf8.Valid(data):
		return errors.New("it is not UTF-8")
	case bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")):
		return l.parseSettings(data)
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
		if _, _, ok := e.splitTool(); !ok {
			return fmt.Errorf("line %d is no Tool(pattern)", i+1)
		}
		if err := l.addEntry(e); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lists) addEntry(e Listed) error {
	if len(l.Entries) == maxEntries || len(e.Entry) > maxEntry {
		return fmt.Errorf("it has more than %d entries, or one longer than %d bytes", maxEntries, maxEntry)
	}
	l.Entries = append(l.Entries, e)
	return nil
}

// splitTool splits an entry into name and pattern.
func (e Listed) splitTool() (name, pattern string, ok bool) {
	name, rest, found := strings.Cut(e.Entry, "(")
	if !toolForm().MatchString(name) {
		return "", "", false
	}
	pattern, closed := strings.CutSuffix(rest, ")")
	return name, pattern, found == closed
}

var toolForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_*.-]{0,127}$`) })

// parseSettings parses the permissions of a settings file and ignores its other settings.
func (l *Lists) parseSettings(data []byte) error {
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
			return l.parsePermissions(list)
		}
		if strings.EqualFold(m.key, "permissions") {
			return fmt.Errorf("the key %q is not written permissions", m.key)
		}
	}
	return errors.New("it holds no permissions")
}

func (l *Lists) parsePermissions(list []member) error {
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
			if err := l.addEntry(Listed{m.key, s}); err != nil {
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

// strictValue parses a value. It refuses a repeated key in an object, because programs differ on which one counts.
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

// plainValue converts a value to the form that encoding/json writes.
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
