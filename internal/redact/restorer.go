package redact

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Restorer is [Table.Restore] for a stream: it passes on all that is written to it, with the table's tokens restored,
// however the text is split. It holds back an incomplete token, at most [maxToken] bytes. It must not be used by
// several goroutines.
type Restorer struct {
	t      *Table
	w      io.Writer
	may    func(Category) bool // which tokens are restored
	held   []byte              // entirely undecided
	out    []byte
	given  int
	misses missCollector
	err    error // the first error; nothing is written after it
}

// Restorer returns a Restorer that writes to w. The caller must Close it.
func (t *Table) Restorer(w io.Writer) *Restorer {
	return t.RestorerOf(w, func(Category) bool { return true })
}

// RestorerOf returns a Restorer that restores only tokens of the categories that may allows. It removes all escapes. The
// caller must Close it.
func (t *Table) RestorerOf(w io.Writer, may func(Category) bool) *Restorer {
	return &Restorer{t: t, w: w, may: may, misses: missCollector{t: t}}
}

// Format keeps the held text out of fmt and log/slog.
func (r *Restorer) Format(f fmt.State, _ rune) { io.WriteString(f, "redact.Restorer") }

// Given returns how many tokens were restored. Left returns how many were not: this table never created them, could not
// keep their texts, or does not recognise the spelling.
func (r *Restorer) Given() int { return r.given }

// Left is explained at [Restorer.Given].
func (r *Restorer) Left() int { return r.misses.count }

// Missed returns the first misses that Left counts.
func (r *Restorer) Missed() []Miss { return r.misses.first }

// Write processes p. If w returns an error, every later call returns it too.
func (r *Restorer) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) && r.err == nil {
		next := min(n+piece, len(p))
		r.held = append(r.held, p[n:next]...)
		r.misses.searchPiece(p[n:next], false)
		r.writeDecided(false)
		n = next
	}
	if r.err != nil {
		return 0, r.err
	}
	return n, nil
}

// PassPiece reports whether Write would write p as it is and hold nothing back, and counts p as written then. It does not
// write. The caller must write p itself, so that nothing comes between.
func (r *Restorer) PassPiece(p []byte) bool {
	if len(r.held) > 0 || r.err != nil || bytes.IndexByte(p, mark[0]) >= 0 {
		return false
	}
	r.misses.searchPiece(p, false)
	return true
}

// Close writes the held text. It does not close w. A Write after Close returns an error. If Close is called again, it
// returns the same result.
func (r *Restorer) Close() error {
	if r.err == nil {
		r.misses.searchPiece(nil, true)
		r.writeDecided(true)
	}
	if r.err == nil {
		r.err = errRestored
	}
	if r.err == errRestored {
		return nil
	}
	return r.err
}

var errRestored = fmt.Errorf("the restoring of this stream has ended: %w", io.ErrClosedPipe)

// writeDecided writes the decided text. The table is not locked during the write, because w may block.
func (r *Restorer) writeDecided(final bool) {
	rest := r.held
	for more := true; more && r.err == nil; {
		rest, more = r.restoreStep(rest, final)
		if len(r.out) > 0 {
			_, r.err = r.w.Write(r.out)
			r.out = r.out[:0]
		}
	}
	r.held = append(r.held[:0], rest...)
}

// restoreStep restores into out until out has the size of a piece, or until the rest needs more bytes; then more is
// false. The text of a single token may exceed the piece. Each lookup locks the table by itself: a lock around them would
// block forever when a writer waits between the two.
func (r *Restorer) restoreStep(b []byte, final bool) (rest []byte, more bool) {
	for len(r.out) < piece {
		i := bytes.Index(b, []byte(mark))
		if i < 0 {
			keep := partialMarkLen(b, mark, final)
			r.out = append(r.out, b[:len(b)-keep]...)
			return b[len(b)-keep:], false
		}
		r.out = append(r.out, b[:i]...)
		b = b[i:]
		if !final && !isDecided(b) {
			return b, false
		}
		b = b[r.restoreOne(b[:min(len(b), maxToken)]):]
	}
	return b, true
}

// restoreOne restores the token or escape at the start of b and returns its length.
func (r *Restorer) restoreOne(b []byte) int {
	text, n := r.t.readOriginal(string(b), func(c Category, _ string) bool { return r.may(c) })
	r.out = append(r.out, text...)
	if n > len(escaped) {
		r.given++
	}
	return n
}

// isDecided reports whether more bytes cannot change the meaning of the mark at the start of b.
func isDecided(b []byte) bool {
	return len(b) >= maxToken || bytes.HasPrefix(b, []byte(escaped)) || bytes.IndexByte(b, ']') >= 0
}

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

// missCollector searches for tokens that are not restored: tokens that the table does not have, and tokens that it has
// but in a spelling as models produce them: in lower case, escaped for Markdown or a regular expression,
// percent-encoded. Redaction does not escape such a spelling, so to restore it would change a text that contains it
// literally. misses holds [maxSpelling] bytes and the first misses.
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

// parseSpelling reads the text after the word up to the closing bracket. It returns the token that is meant, and the
// length read.
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
