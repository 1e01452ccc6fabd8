package redact

import (
	"bytes"
	"strings"
)

// Miss is a text that a reader takes for a token, and that was not given back.
type Miss struct {
	Line  int    `json:"line"`  // that it begins in, counted from one
	Text  string `json:"text"`  // as it is spelt, at most 64 bytes
	Spelt bool   `json:"spelt"` // exactly as a token: the session has none such
}

const (
	maxMisses   = 5            // that are named
	maxSpelling = 2 * maxToken // each byte of a token may be escaped
	maxOpener   = len("%5B")   // what of a spelling stands before its word
	tokenWord   = "redacted"   // in whatever case
	tokenStart  = "[REDACTED"  // mark without its underscore
)

// misses looks for tokens that are not given back: those that the table does not have, and those it has in spellings
// that models make of them: in lower case, escaped for Markdown or a regular expression, percent-encoded. Such a
// spelling is not escaped where it stands in a text that is redacted, so giving it back would change that text. It
// holds [maxSpelling] bytes and what it names.
type misses struct {
	t     *Table
	held  []byte
	at    int // what of held is decided
	line  int // newlines before at
	count int
	first []Miss
}

// look takes the next piece of the text.
func (m *misses) look(p []byte, final bool) {
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
			m.try()
		}
	}
	keep := max(0, m.at-maxOpener)
	m.held = append(m.held[:0], m.held[keep:]...)
	m.at -= keep
}

// try reads the spelling whose word begins here, if one does.
func (m *misses) try() {
	rest := m.held[m.at:min(len(m.held), m.at+maxSpelling)]
	if len(rest) < len(tokenWord) || !strings.EqualFold(string(rest[:len(tokenWord)]), tokenWord) {
		return
	}
	from := m.at - opener(m.held[:m.at])
	token, n := spelling(rest[len(tokenWord):])
	if from == m.at || n == 0 || !wellFormed(token) {
		return
	}
	text := string(m.held[from : m.at+len(tokenWord)+n])
	spelt := strings.TrimPrefix(text, `\`) == token
	m.t.mu.RLock()
	has, _ := m.t.lookup(token)
	m.t.mu.RUnlock()
	if (has != "") == spelt { // it was given back, or is no token of this session in any spelling
		return
	}
	if m.count++; len(m.first) < maxMisses {
		m.first = append(m.first, Miss{m.line + 1, text[:min(len(text), maxToken)], spelt})
	}
}

// opener returns how long the bracket is that b ends in, 0 if there is none.
func opener(b []byte) int {
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

// spelling reads what follows the word up to the closing bracket: the token that is meant, and how long it is.
func spelling(b []byte) (token string, n int) {
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

// wellFormed holds for a category that begins with a letter and a number after it, or X where none was left.
func wellFormed(token string) bool {
	name, ok := strings.CutPrefix(strings.TrimSuffix(token, "]"), mark)
	i := strings.LastIndexByte(name, '_')
	if !ok || len(token) > maxToken || i < 1 || name[0] < 'A' || name[0] > 'Z' {
		return false
	}
	number := name[i+1:]
	return number == "X" || number != "" && strings.Trim(number, "0123456789") == ""
}
