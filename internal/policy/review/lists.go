package review

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"bailey"
	"bailey/internal/strictjson"
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
		return Lists{}, bailey.Invalid.Errorf("use the settings.json of Claude Code, or one Tool(pattern) a line",
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
			return fmt.Errorf("line %d is not of the form Tool(pattern)", i+1)
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
	if err := strictjson.Check(data, maxNested); err != nil {
		return err
	}
	top, _ := strictjson.Members(data)
	for _, m := range top {
		if m.Name == "permissions" {
			list, ok := strictjson.Members(m.Value)
			if !ok {
				return errors.New("permissions is not an object")
			}
			return l.parsePermissions(list)
		}
		if strings.EqualFold(m.Name, "permissions") {
			return fmt.Errorf("the key %q is not written permissions", m.Name)
		}
	}
	return errors.New("it has no permissions")
}

func (l *Lists) parsePermissions(list []strictjson.Member) error {
	for _, m := range list {
		var value any
		if err := strictjson.Decode(m.Value, &value); err != nil {
			return err
		}
		if m.Name != "allow" && m.Name != "ask" && m.Name != "deny" {
			text, _ := json.Marshal(value)
			l.Left = append(l.Left, fmt.Sprintf("%s %s", m.Name, text))
			continue
		}
		entries, ok := value.([]any)
		if !ok {
			return fmt.Errorf("permissions.%s is not an array", m.Name)
		}
		for i, v := range entries {
			s, ok := v.(string)
			if !ok {
				return fmt.Errorf("permissions.%s[%d] is not a string", m.Name, i)
			}
			if err := l.addEntry(Listed{m.Name, s}); err != nil {
				return err
			}
		}
	}
	return nil
}
