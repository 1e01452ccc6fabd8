package redact

import (
	"slices"
	"strings"
)

// Grant says what may be given back in one input. The zero one gives back nothing.
type Grant struct {
	Type    string     // of the input; pseudonyms are given back in "host", "address", "url" and "path"
	Secrets []Category // these, and no others
}

// Restore undoes Text: tokens of this table become what they stand for, escapes become what they were.
// A token that this table did not give out stays. What it returns is for no one who should not see
// everything; for the inputs of a call there is Give.
func (t *Table) Restore(s string) string {
	return t.restore(s, func(Category) bool { return true })
}

// Give is Restore for what g allows, and says of which categories it gave something back, each once. Other tokens
// stay. Pseudonyms are given back where they say whom to ask and nowhere else, see [spot]: behind that they
// would be told to whoever is asked. What was given back is learned: from now on it is hidden wherever it stands,
// for a tool may write it where nothing else tells what it is. A token says no more than its category and number,
// so one that another table gave out can at most stand for a text of this one.
func (t *Table) Give(s string, g Grant) (text string, given []Category) {
	if !strings.Contains(s, mark) {
		return s, nil
	}
	from, to := spot(g.Type, s)
	var out strings.Builder
	for _, part := range [...]struct {
		text       string
		pseudonyms bool
	}{{s[:from], false}, {s[from:to], true}, {s[to:], false}} {
		out.WriteString(t.restore(part.text, func(c Category) bool {
			if Pseudonym(c) && !part.pseudonyms || !Pseudonym(c) && !slices.Contains(g.Secrets, c) {
				return false
			}
			if !slices.Contains(given, c) {
				given = append(given, c)
			}
			return true
		}))
	}
	if given != nil {
		t.learnTokens(s, given)
	}
	return out.String(), given
}

// Again redacts what somebody made of redacted text. This table's tokens in it stay the tokens they are, and what
// they stand for is hidden wherever it stands from now on.
func (t *Table) Again(s string) string {
	if strings.Contains(s, mark) {
		t.learnTokens(s, nil)
		s = t.Restore(s)
	}
	s, _ = t.Text(s)
	return s
}

// learnTokens learns what the tokens in s stand for, those of some categories or, for nil, all.
func (t *Table) learnTokens(s string, some []Category) {
	type secret struct{ category, text string }
	var found []secret
	t.mu.RLock()
	for rest := s; ; {
		i := strings.Index(rest, mark)
		if i < 0 {
			break
		}
		rest = rest[i:]
		if token, text := t.lookup(rest); token != "" && (some == nil || slices.Contains(some, named(token))) {
			found = append(found, secret{named(token), text})
		}
		rest = rest[len(mark):]
	}
	t.mu.RUnlock()
	for _, f := range found {
		t.Learn(f.category, f.text)
	}
}

// spot returns the part of an input in which pseudonyms may be given back: all of a path; of the others the host
// when a single token is all of it. A token within a longer name would tell what it stands for to whoever serves
// that name's domain.
func spot(inputType, s string) (from, to int) {
	switch inputType {
	case "path":
		return 0, len(s)
	case "host", "address":
		return token(s, 0, inputType == "address")
	case "url":
		if strings.HasPrefix(s, mark) { // the name of a tenant has its scheme with it
			return token(s, 0, true)
		}
		if i := strings.Index(s, "://"); i >= 0 && !strings.ContainsAny(s[:i], "/?#") {
			return token(s, i+len("://"), true)
		}
	}
	return 0, 0
}

// token returns where the host at the place i is one token: up to the end or, if more may follow, up to
// what ends a host (RFC 3986, section 3.2).
func token(s string, i int, more bool) (from, to int) {
	from = i
	if more && strings.HasPrefix(s[i:], "["+mark) { // an IPv6 address in its brackets
		from++
	}
	if !strings.HasPrefix(s[from:], mark) {
		return 0, 0
	}
	n := strings.IndexByte(s[from:], ']') + 1
	if n == 0 {
		return 0, 0
	}
	to = from + n
	rest := s[to:]
	if from > i {
		var closed bool
		if rest, closed = strings.CutPrefix(rest, "]"); !closed {
			return 0, 0
		}
	}
	if rest == "" || more && strings.IndexByte(":/?#", rest[0]) >= 0 && !strings.ContainsAny(authority(rest), `@\`) {
		return from, to
	}
	return 0, 0
}

// authority is what of a URL's rest still belongs to who is asked.
func authority(rest string) string {
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		return rest[:i]
	}
	return rest
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
	if token, text := t.lookup(s); token != "" && may(named(token)) {
		return text, len(token)
	}
	return mark, len(mark)
}

// lookup returns the token of this table that s begins with, "" if there is none, and what it stands for.
func (t *Table) lookup(s string) (token, text string) {
	if end := strings.IndexByte(s[:min(len(s), maxToken)], ']'); end >= 0 {
		if text, ok := t.texts[s[:end+1]]; ok {
			return s[:end+1], text
		}
	}
	return "", ""
}

// categoryOf reads the category in a token.
func named(token string) Category { return token[len(mark):strings.LastIndexByte(token, '_')] }

// maxToken is longer than any token.
const maxToken = 64
