// Package redact turns secrets into tokens and tokens back into secrets.
//
// A [Table] is the map of one session. It lives in memory alone. What it finds becomes a token
//
//	[REDACTED_CATEGORY_N]
//
// where CATEGORY is A-Z, 0-9 and underscores, begins with a letter, and N counts from one in each
// category. The same text has the same token for as long as the table lives. Found are:
//
//   - every secret given to [Table.Learn], wherever it stands, as it is or base64 (both alphabets, at each
//     of the three alignments, with the characters it shares with its neighbours), hex, percent-encoded or
//     escaped for JSON. An encoded form is a text of its own and gets a token of its own, or else a
//     token would not say which text it stands for.
//   - private key blocks, category PRIVATE_KEY: see block.
//
// Where two finds overlap, all bytes of both are hidden: the longest find at the leftmost place gets a token,
// then the rest of the other gets one.
//
// # Data that looks like a token
//
// Every "[REDACTED_" in the data gets a second underscore, "[REDACTED__". A category begins with a letter, so
// the two cannot be confused, and [Table.Restore] takes exactly that one underscore away. For every text x
//
//	Restore(Text(x)) == x
//
// as long as the table has room. It follows that Text is not idempotent: redacting what is redacted
// already escapes its tokens.
//
// # Bounds
//
// A table keeps at most [MaxEntries] texts of together [MaxBytes]. What is found beyond is hidden behind
// [REDACTED_CATEGORY_X], the same for all, which Restore leaves as it stands.
package redact

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

const (
	MaxEntries = 10_000   // texts that have a token
	MaxBytes   = 16 << 20 // their bytes
)

const (
	mark    = "[REDACTED_"
	escaped = mark + "_"
)

// Table is the map of one session, safe for concurrent use. It prints without its contents.
type Table struct {
	mu     sync.RWMutex
	index  index             // what to look for
	known  map[string]bool   // secrets in the index
	tokens map[string]string // text → token
	texts  map[string]string // token → text
	last   map[string]int    // category → its highest number
	bytes  int               // of all texts
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{
		known:  map[string]bool{},
		tokens: map[string]string{},
		texts:  map[string]string{},
		last:   map[string]int{},
	}
}

// Format keeps the contents out of fmt and log/slog.
func (t *Table) Format(f fmt.State, _ rune) { io.WriteString(f, "redact.Table") }

// Learn hides secret from now on. White space around it is not part of it: a value from a file ends in
// a newline, its copies do not. A secret of white space alone hides nothing. One of fewer than four bytes
// is found as it is and escaped, but not in hex or base64, where it would be found everywhere. A secret
// keeps the category it was first learned under.
func (t *Table) Learn(category, secret string) {
	secret = strings.TrimSpace(secret)
	if secret == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[secret] {
		return
	}
	t.known[secret] = true
	category = clean(category)
	for _, f := range forms(secret) {
		t.index.add(pattern{f, category})
	}
}

// clean makes a category of any text: A-Z, 0-9 and underscores, a letter first, 32 at most.
func clean(category string) string {
	up := []byte(strings.ToUpper(category))
	for i, c := range up {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			up[i] = '_'
		}
	}
	name := strings.TrimLeft(string(up), "_0123456789")
	if name == "" {
		return "SECRET"
	}
	return name[:min(len(name), 32)]
}

// Text returns s redacted, and how many tokens that took.
func (t *Table) Text(s string) (string, int) {
	if t.plain(s) {
		return s, 0
	}
	st := stream{t: t}
	for len(s) > piece { // memory for finds stays small, whatever is found
		st.b = append(st.b, s[:piece]...)
		st.feed(false)
		s = s[piece:]
	}
	st.b = append(st.b, s...)
	st.feed(true)
	return string(st.out), st.count
}

// plain holds when nothing could be found in s, whatever it holds.
func (t *Table) plain(s string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.index.size == 0 && !strings.Contains(s, mark) && !strings.Contains(s, beginMark)
}

// token returns the token of text, a new one if need be and if there is room.
func (t *Table) token(category string, text []byte) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if token, ok := t.tokens[string(text)]; ok {
		return token
	}
	if len(t.tokens) >= MaxEntries || t.bytes+len(text) > MaxBytes {
		return mark + category + "_X]"
	}
	t.last[category]++
	token := mark + category + "_" + strconv.Itoa(t.last[category]) + "]"
	t.tokens[string(text)] = token
	t.texts[token] = string(text)
	t.bytes += len(text)
	return token
}

// Restore undoes Text: tokens of this table become what they stand for, escapes become what they were.
// A token that this table did not give out stays.
func (t *Table) Restore(s string) string {
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
		text, n := t.original(s[i:])
		out.WriteString(text)
		s = s[i+n:]
	}
}

// original reads what begins with a mark and returns what it stands for and how long it is.
func (t *Table) original(s string) (string, int) {
	if strings.HasPrefix(s, escaped) {
		return mark, len(escaped)
	}
	if end := strings.IndexByte(s[:min(len(s), 64)], ']'); end >= 0 {
		if text, ok := t.texts[s[:end+1]]; ok {
			return text, end + 1
		}
	}
	return mark, len(mark)
}

// escape appends data to out with every mark in it escaped.
func escape(out, data []byte) []byte {
	for {
		i := bytes.Index(data, []byte(mark))
		if i < 0 {
			return append(out, data...)
		}
		out = append(out, data[:i]...)
		out = append(out, escaped...)
		data = data[i+len(mark):]
	}
}
