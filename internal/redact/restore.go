package redact

import (
	"slices"
	"strings"
)

// Grant says what may be given back. The zero one gives back nothing.
type Grant struct {
	Pseudonyms bool       // addresses and names, see [PseudonymsIn]
	Secrets    []Category // these, and no others
}

func (g Grant) allows(c Category) bool {
	if Pseudonym(c) {
		return g.Pseudonyms
	}
	return slices.Contains(g.Secrets, c)
}

// Restore undoes Text: tokens of this table become what they stand for, escapes become what they were.
// A token that this table did not give out stays. What it returns is for no one who should not see
// everything; for the inputs of a call there is Give.
func (t *Table) Restore(s string) string {
	return t.restore(s, func(Category) bool { return true })
}

// Give is Restore for what g allows, and says of which categories it gave something back, each once. Other tokens
// stay. A token says no more than its category and number, so one that another table gave out can at most
// stand for a text of this one.
func (t *Table) Give(s string, g Grant) (text string, given []Category) {
	text = t.restore(s, func(c Category) bool {
		if !g.allows(c) {
			return false
		}
		if !slices.Contains(given, c) {
			given = append(given, c)
		}
		return true
	})
	return text, given
}

func (t *Table) restore(s string, may func(Category) bool) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out strings.Builder
	for {
		i := strings.Index(s, mark)
		if i < 0 {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:i])
		text, n := t.original(s[i:], may)
		out.WriteString(text)
		s = s[i+n:]
	}
}

// original reads what begins with a mark and returns what it stands for and how long it is.
func (t *Table) original(s string, may func(Category) bool) (string, int) {
	if strings.HasPrefix(s, escaped) {
		return mark, len(escaped)
	}
	if end := strings.IndexByte(s[:min(len(s), maxToken)], ']'); end >= 0 {
		if text, ok := t.texts[s[:end+1]]; ok && may(s[len(mark):strings.LastIndexByte(s[:end], '_')]) {
			return text, end + 1
		}
	}
	return mark, len(mark)
}

// maxToken is longer than any token.
const maxToken = 64
