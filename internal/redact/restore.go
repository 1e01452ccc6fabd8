package redact

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// Grant says what may be restored in one input. The zero Grant restores nothing.
type Grant struct {
	Type    string     // type of the input; pseudonyms are restored in "host", "address", "url", "path" and "subpath"
	Secrets []Category // only secrets of these categories are restored
}

// Restore is the inverse of Text: it replaces tokens of this table by their texts and removes escapes. A token from
// elsewhere stays. The result should go only to readers that may see everything; for the inputs of a call, use Give.
func (t *Table) Restore(s string) string {
	return t.restoreTokens(s, func(Category, string) bool { return true })
}

// RestoreOf is Restore for the tokens of the categories that may allows. Other tokens stay.
func (t *Table) RestoreOf(s string, may func(Category) bool) string {
	return t.restoreTokens(s, func(c Category, _ string) bool { return may(c) })
}

// Prompt redacts a text that an agent sends to its model. Tokens of this table and escapes stay, because the agent got
// them from this session. As by [Table.Input], secrets that are found are hidden from then on wherever they occur.
func (t *Table) Prompt(s string) string {
	out := t.Again(s)
	if out != s {
		t.learnTokens(out)
	}
	return out
}

// maxReserved limits the number of a token that is reserved, so that a text cannot make all later tokens long.
const maxReserved = 1 << 20

// maxReservedCategories limits the categories whose numbers a text can reserve one by one. The numbers of others have a
// common floor.
const maxReservedCategories = 512

// ReserveTokens makes sure that no text gets a token which occurs in b already and is not of this table. In the history
// of a conversation, such a token is of an earlier table: it must not stand for another text now.
func (t *Table) ReserveTokens(b []byte) {
	for {
		i := bytes.Index(b, []byte(mark))
		if i < 0 {
			return
		}
		b = b[i:]
		if end := bytes.IndexByte(b[:min(len(b), maxToken)], ']'); end >= 0 && wellFormed(string(b[:end+1])) {
			t.reserveToken(string(b[:end+1]))
		}
		b = b[len(mark):]
	}
}

func (t *Table) reserveToken(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := strconv.Atoi(token[strings.LastIndexByte(token, '_')+1 : len(token)-1])
	if _, own := t.texts[token]; own || err != nil || n > maxReserved {
		return
	}
	category := categoryOfToken(token)
	if _, known := t.last[category]; known || len(t.last) < maxReservedCategories {
		t.last[category] = max(t.last[category], n)
	} else {
		t.floor = max(t.floor, n)
	}
}

// Give is Restore limited to g. It returns each category that it restored, once. Other tokens stay.
//
// A secret is restored only if its token is all of s; if other text were next to it, the effect of the call on that
// text could be used to probe the secret. A pseudonym is restored only where it names the endpoint to contact (see
// [restorableRange]); anywhere else, that endpoint would learn it.
//
// Restored texts are learned and therefore hidden everywhere from now on, because a tool may print them without any
// context. A table learns at most maxLearned texts in this way. After that, it restores nothing new.
//
// A token contains only a category and a number. A token of another table can therefore at most stand for a text of
// this one.
func (t *Table) Give(s string, g Grant) (text string, given []Category) {
	if !strings.Contains(s, mark) {
		return s, nil
	}
	if c, text := t.wholeToken(s); c != "" && !Pseudonym(c) {
		if slices.Contains(g.Secrets, c) && t.learnOnce(c, text) {
			return text, []Category{c}
		}
		return s, nil
	}
	from, to := restorableRange(g.Type, s)
	never := func(Category, string) bool { return false }
	middle := t.restoreTokens(s[from:to], func(c Category, text string) bool {
		if !Pseudonym(c) || c == Host && (g.Type == "path" || g.Type == "subpath" || t.containsLearned(text)) ||
			!t.learnOnce(c, text) {
			return false
		}
		if !slices.Contains(given, c) {
			given = append(given, c)
		}
		return true
	})
	return t.restoreTokens(s[:from], never) + middle + t.restoreTokens(s[to:], never), given
}

// wholeToken returns the text for which s stands, if s is exactly one token of this table.
func (t *Table) wholeToken(s string) (Category, string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if token, text := t.lookupToken(s); token != "" && len(token) == len(s) {
		return categoryOfToken(token), text
	}
	return "", ""
}

// containsLearned reports whether text contains a learned text that is shorter than text itself.
func (t *Table) containsLearned(text string) (found bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	t.index.scan([]byte(text), 0, true, func(s span) { found = found || s.end-s.start < len(text) })
	return found
}

// maxLearned limits the number of texts that a table learns from calls, because it searches for each of them from then
// on.
const maxLearned = 4096

// learnOnce learns the text of a token and reports whether it is known now. Addresses are searched for only as they
// are, other texts also in their encodings.
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
		t.index.addPattern(pattern{form{core: text}, c})
		return true
	}
	t.learnLocked(c, text)
	return true
}

// Input is JSON for the input of a call. It also learns the secrets found there, because the context that identified
// them, for example the name of an input, is missing in an argument or an error message. Secrets of fewer than minInput
// bytes are not learned, because they occur in other texts by chance.
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

// learnTokens learns the secrets whose tokens are in s.
func (t *Table) learnTokens(s string) {
	for {
		i := strings.Index(s, mark)
		if i < 0 {
			return
		}
		s = s[i:]
		t.mu.RLock()
		token, text := t.lookupToken(s)
		t.mu.RUnlock()
		if token != "" && !Pseudonym(categoryOfToken(token)) && len(text) >= minInput {
			t.learnOnce(categoryOfToken(token), text)
		}
		s = s[len(mark):]
	}
}

// Again redacts a text that was derived from redacted text. Tokens of this table and escapes stay as they are.
func (t *Table) Again(s string) string {
	st := t.newStream()
	st.keep = true
	st.feedPiece([]byte(s), true)
	return string(st.out)
}

// keptLen returns the length of the token of this table, or of the escape, at the start of s.
func (t *Table) keptLen(s []byte) int {
	if bytes.HasPrefix(s, []byte(escaped)) {
		return len(escaped)
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	token, _ := t.lookupToken(string(s[:min(len(s), maxToken)]))
	return len(token)
}

// restorableRange returns the part of an input in which pseudonyms may be restored. In a path, that is all of it (Give
// excepts tenant names, because path cleaning changes a path with such a name). In other inputs, it is the host if that
// is exactly one token. A token inside a longer name would reveal its text to the server of that name's domain.
func restorableRange(inputType, s string) (from, to int) {
	switch inputType {
	case "path", "subpath":
		return 0, len(s)
	case "host", "address":
		return wholeHostToken(s, 0, inputType == "address")
	case "url":
		if strings.HasPrefix(s, mark) { // the name of a tenant includes its scheme
			return wholeHostToken(s, 0, true)
		}
		if i := strings.Index(s, "://"); i >= 0 && !strings.ContainsAny(s[:i], "/?#") {
			return wholeHostToken(s, i+len("://"), true)
		}
	}
	return 0, 0
}

// wholeHostToken returns the bounds of a token that is the whole host at offset i. The host extends to the end of s or,
// if more is set, to a character that ends a host (RFC 3986, section 3.2).
func wholeHostToken(s string, i int, more bool) (from, to int) {
	from = i
	if more && strings.HasPrefix(s[i:], "["+mark) { // an IPv6 address in brackets
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
	if rest == "" || more && strings.IndexByte(":/?#", rest[0]) >= 0 &&
		!strings.ContainsAny(possibleAuthority(rest), `@\`) {
		return from, to
	}
	return 0, 0
}

// possibleAuthority returns the part of the rest of a URL that some parser may take for the authority: in
// "host?@other/", some use the last @.
func possibleAuthority(rest string) string {
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[:i]
	}
	return rest
}

func (t *Table) restoreTokens(s string, may func(Category, string) bool) string {
	var out strings.Builder
	for {
		i := strings.Index(s, mark)
		if i < 0 {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:i])
		text, n := t.readOriginal(s[i:], may)
		out.WriteString(text)
		s = s[i+n:]
	}
}

// readOriginal reads the token or escape that begins with a mark. It returns its text and the length read.
func (t *Table) readOriginal(s string, may func(Category, string) bool) (string, int) {
	if strings.HasPrefix(s, escaped) {
		return mark, len(escaped)
	}
	t.mu.RLock()
	token, text := t.lookupToken(s)
	t.mu.RUnlock()
	if token != "" && may(categoryOfToken(token), text) {
		return text, len(token)
	}
	return mark, len(mark)
}

// lookupToken returns the token of this table at the start of s, or "", and its text.
func (t *Table) lookupToken(s string) (token, text string) {
	if end := strings.IndexByte(s[:min(len(s), maxToken)], ']'); end >= 0 {
		if text, ok := t.texts[s[:end+1]]; ok {
			return s[:end+1], text
		}
	}
	return "", ""
}

// categoryOfToken returns the category in a token.
func categoryOfToken(token string) Category {
	return token[len(mark):strings.LastIndexByte(token, '_')]
}

// maxToken is greater than the length of any token.
const maxToken = 64
