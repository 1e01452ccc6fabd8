package redact

import (
	"bytes"
	"strings"
)

// Miss is a text that a reader would take for a token but that was not restored.
type Miss struct {
	Line  int    `json:"line"`  // line in which it begins, counted from one
	Text  string `json:"text"`  // as spelt, at most 64 bytes
	Spelt bool   `json:"spelt"` // spelt exactly as a token, but the session has none of that name
}

const (
	maxMisses   = 5            // number of misses that are listed
	maxSpelling = 2 * maxToken // each byte of a token may be escaped
	maxOpener   = len("%5B")   // the part of a spelling before its word
	tokenWord   = "redacted"   // in any case
	tokenStart  = "[REDACTED"  // mark without its underscore
)

// missCollector searches for tokens that are not restored: tokens that the table does not have, and tokens that it has but in
// a spelling as models produce them: in lower case, escaped for Markdown or a regular expression, percent-encoded.
// Redaction does not escape such a spelling, so to restore it would change a text that contains it literally. misses
// holds [maxSpelling] bytes and the first misses.
type missCollector struct {
	t     *Table
	held  []byte
	at    int // the part of held before it is decided
	line  int // newlines before at
	count int
	first []Miss
}

// searchPiece processes the next piece of the text.
func (m *missCollector) searchPiece(p []byte, final bool) {
	m.held = append(m.held, p...)
	end := len(m.held)
	if !final {
		end -= maxSpelling
	}
	for ; m.at < end; m.at++ {
		switch c := m.held[m.at]; {
		case c == '\n':
			m.line++
		case c|0x20 == tokenWord[0]:
			m.checkSpelling()
		}
	}
	keep := max(0, m.at-maxOpener)
	m.held = append(m.held[:0], m.held[keep:]...)
	m.at -= keep
}

// checkSpelling reads the spelling whose word begins at m.at, if there is one.
func (m *missCollector) checkSpelling() {
	rest := m.held[m.at:min(len(m.held), m.at+maxSpelling)]
	if len(rest) < len(tokenWord) || !strings.EqualFold(string(rest[:len(tokenWord)]), tokenWord) {
		return
	}
	from := m.at - openBracketLen(m.held[:m.at])
	token, n := parseSpelling(rest[len(tokenWord):])
	if from == m.at || n == 0 || !wellFormed(token) {
		return
	}
	text := string(m.held[from : m.at+len(tokenWord)+n])
	spelt := strings.TrimPrefix(text, `\`) == token
	m.t.mu.RLock()
	has, _ := m.t.lookupToken(token)
	m.t.mu.RUnlock()
	if (has != "") == spelt { // it was restored, or no spelling of it is a token of this session
		return
	}
	if m.count++; len(m.first) < maxMisses {
		m.first = append(m.first, Miss{m.line + 1, text[:min(len(text), maxToken)], spelt})
	}
}

// openBracketLen returns the length of the bracket at the end of b, or 0.
func openBracketLen(b []byte) int {
	switch {
	case bytes.HasSuffix(b, []byte(`\[`)):
		return 2
	case bytes.HasSuffix(b, []byte("[")):
		return 1
	case len(b) >= 3 && strings.EqualFold(string(b[len(b)-3:]), "%5B"):
		return 3
	}
	return 0
}

// parseSpelling reads the text after the word up to the closing bracket. It returns the token that is meant, and the length
// read.
func parseSpelling(b []byte) (token string, n int) {
	out := []byte(tokenStart)
	for n < len(b) {
		c, size := b[n], 1
		switch {
		case c == '\\' && n+1 < len(b) && (b[n+1] == '_' || b[n+1] == ']'):
			c, size = b[n+1], 2
		case c == '%' && n+2 < len(b) && b[n+1] == '5' && b[n+2]|0x20 == 'f':
			c, size = '_', 3
		case c == '%' && n+2 < len(b) && b[n+1] == '5' && b[n+2]|0x20 == 'd':
			c, size = ']', 3
		case c >= 'a' && c <= 'z':
			c -= 'a' - 'A'
		}
		n += size
		switch {
		case c == ']':
			return string(append(out, c)), n
		case c != '_' && (c < 'A' || c > 'Z') && (c < '0' || c > '9'):
			return "", 0
		}
		out = append(out, c)
	}
	return "", 0
}

// wellFormed reports whether a token has a category that begins with a letter, and a number, or X if the table was
// full.
func wellFormed(token string) bool {
	name, ok := strings.CutPrefix(strings.TrimSuffix(token, "]"), mark)
	i := strings.LastIndexByte(name, '_')
	if !ok || len(token) > maxToken || i < 1 || name[0] < 'A' || name[0] > 'Z' {
		return false
	}
	number := name[i+1:]
	return number == "X" || number != "" && strings.Trim(number, "0123456789") == ""
}
