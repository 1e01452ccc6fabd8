package redact

import (
	"bytes"
	"slices"
	"strings"
)

// Grant says what may be given back in one input. The zero one gives back nothing.
type Grant struct {
	Type    string     // of the input; pseudonyms are given back in "host", "address", "url", "path" and "subpath"
	Secrets []Category // these, and no others
}

// Restore undoes Text: tokens of this table become what they stand for, escapes become what they were.
// A token that this table did not give out stays. What it returns is for no one who should not see
// everything; for the inputs of a call there is Give.
func (t *Table) Restore(s string) string {
	return t.restore(s, func(Category, string) bool { return true })
}

// Give is Restore for what g allows, and says of which categories it gave something back, each once. Other tokens
// stay. A secret is given back when its token is all of s: beside other text it would be measured by what that does
// to it. Pseudonyms are given back where they say whom to ask and nowhere else, see [spot]: behind that they
// would be told to whoever is asked. What was given back is learned: from now on it is hidden wherever it stands,
// for a tool may write it where nothing else tells what it is. A table learns maxLearned texts so; then it gives
// nothing back that is new. A token says no more than its category and number, so one that another table gave out
// can at most stand for a text of this one.
func (t *Table) Give(s string, g Grant) (text string, given []Category) {
	if !strings.Contains(s, mark) {
		return s, nil
	}
	if c, text := t.whole(s); c != "" && !Pseudonym(c) {
		if slices.Contains(g.Secrets, c) && t.learnOnce(c, text) {
			return text, []Category{c}
		}
		return s, nil
	}
	from, to := spot(g.Type, s)
	never := func(Category, string) bool { return false }
	middle := t.restore(s[from:to], func(c Category, text string) bool {
		if !Pseudonym(c) || c == Host && (g.Type == "path" || g.Type == "subpath" || t.holds(text)) || !t.learnOnce(c, text) {
			return false
		}
		if !slices.Contains(given, c) {
			given = append(given, c)
		}
		return true
	})
	return t.restore(s[:from], never) + middle + t.restore(s[to:], never), given
}

// whole returns what s stands for when a token of this table is all of it.
func (t *Table) whole(s string) (Category, string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if token, text := t.lookup(s); token != "" && len(token) == len(s) {
		return named(token), text
	}
	return "", ""
}

// holds tells whether something that was learned stands in text and is not all of it.
func (t *Table) holds(text string) (found bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	t.index.scan([]byte(text), 0, true, func(s span) { found = found || s.end-s.start < len(text) })
	return found
}

// maxLearned bounds what a table learns from calls: each text learned is looked for ever after.
const maxLearned = 4096

// learnOnce learns what a token stood for and reports whether it is known now. Addresses are looked for as they are, all
// else in its encodings too.
func (t *Table) learnOnce(c Category, text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.given[text] || t.known[strings.TrimSpace(text)]:
		return true
	case len(t.given) >= maxLearned:
		return false
	}
	t.given[text] = true
	if Pseudonym(c) {
		t.index.add(pattern{form{core: text}, c})
		return true
	}
	t.learn(c, text)
	return true
}

// Input is JSON for the input of a call, and learns the secrets found in it: what told them apart, the name of an
// input say, will not stand beside them in an argument or a complaint. Those of fewer than minInput bytes are not
// learned, since they stand in other texts by chance.
func (t *Table) Input(v any) any {
	out, n := t.JSON(v)
	if n > 0 {
		t.learnAll(out)
	}
	return out
}

const minInput = 6

func (t *Table) learnAll(redacted any) {
	switch v := redacted.(type) {
	case string:
		t.learnTokens(v)
	case []any:
		for _, e := range v {
			t.learnAll(e)
		}
	case map[string]any:
		for k, e := range v {
			t.learnTokens(k)
			t.learnAll(e)
		}
	}
}

// learnTokens learns the secrets that the tokens in s stand for.
func (t *Table) learnTokens(s string) {
	for {
		i := strings.Index(s, mark)
		if i < 0 {
			return
		}
		s = s[i:]
		t.mu.RLock()
		token, text := t.lookup(s)
		t.mu.RUnlock()
		if token != "" && !Pseudonym(named(token)) && len(text) >= minInput {
			t.learnOnce(named(token), text)
		}
		s = s[len(mark):]
	}
}

// Again redacts what somebody made of redacted text: this table's tokens and the escapes in it stay as they are.
func (t *Table) Again(s string) string {
	st := t.newStream()
	st.keep = true
	st.feed([]byte(s), true)
	return string(st.out)
}

// kept returns the length of the token of this table, or of the escape, that s begins with.
func (t *Table) kept(s []byte) int {
	if bytes.HasPrefix(s, []byte(escaped)) {
		return len(escaped)
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	token, _ := t.lookup(string(s[:min(len(s), maxToken)]))
	return len(token)
}

// spot returns the part of an input in which pseudonyms may be given back: all of a path (names of tenants excepted, for
// a path of theirs is cleaned into something else); of the others the host
// when a single token is all of it. A token within a longer name would tell what it stands for to whoever serves
// that name's domain.
func spot(inputType, s string) (from, to int) {
	switch inputType {
	case "path", "subpath":
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

// authority is what of a URL's rest some reader may take for who is asked: of "host?@other/" some take the last @.
func authority(rest string) string {
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[:i]
	}
	return rest
}

func (t *Table) restore(s string, may func(Category, string) bool) string {
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
func (t *Table) original(s string, may func(Category, string) bool) (string, int) {
	if strings.HasPrefix(s, escaped) {
		return mark, len(escaped)
	}
	t.mu.RLock()
	token, text := t.lookup(s)
	t.mu.RUnlock()
	if token != "" && may(named(token), text) {
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
