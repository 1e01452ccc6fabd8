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
// A table of [Rules] finds more:
//
//   - tokens of services by what they begin with (data/*prefixes.txt), by their form (JWT, Discord,
//     Telegram, Twilio), hashes of passwords, keys without their armour, files of credentials, addresses;
//   - values by what stands before them: a name (password=…, "token": …, <apiKey>…), a flag, a header, user
//     and password of a URL, a line of .netrc or .pgpass, the name of a service (data/*services.txt). What
//     the name asks for, what stands between, and what the value looks like decide together: see
//     finder, key, judge;
//   - values in a block of YAML under such a name, line by line; lines of a private key without its first and last;
//   - all that under up to three layers of base64, with terminal escapes in it, in UTF-16, and where the signs around it
//     are encoded for HTML, a URL, JSON or JavaScript, or for two of these;
//   - patterns of one's own, line by line: see [Pattern].
//
// What only looks like a secret is left alone: digests, identifiers, versions, variables, names of
// things in programs, words that stand where a secret would. No checksum is asked for, although some
// services have one in their tokens: a token that was cut or mistyped is still better hidden.
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
// # Giving back
//
// Addresses and the names of tenants are pseudonyms, everything else is a secret; [Table.Give] restores what a
// [Grant] allows and says what that was. It counts on being asked once for each input: what it has taken the
// escape from looks like a token again.
//
// # Streams
//
// A [Writer] finds the same however its text is split, and holds back only what could still become a find:
// a word that is not over (16 KiB at most; a prompt ends in a space and goes out), the value after a name
// that asks for one (4 KiB), base64 in full lines (16 KiB), a URL with a user, a JSON object that begins like a
// file of credentials (8 KiB), the beginning of a learned secret, an open key block (64 KiB), a line in which a
// custom pattern may match (4 KiB). What is longer is hidden in pieces. Close gives out the rest.
//
// # Bounds
//
// A table keeps at most [MaxEntries] texts of together [MaxBytes]. What is found beyond is hidden behind
// [REDACTED_CATEGORY_X], the same for all, which Restore leaves as it stands.
package redact

import (
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
	given  map[string]bool   // learned from calls
	rules  *Rules            // nil: what was learned and key blocks alone
}

// NewTable returns an empty table without rules: it finds what it has learned, and key blocks. For all that
// is built in see [Compile].
func NewTable() *Table {
	return &Table{
		known:  map[string]bool{},
		tokens: map[string]string{},
		texts:  map[string]string{},
		last:   map[string]int{},
		given:  map[string]bool{},
	}
}

// Format keeps the contents out of fmt and log/slog.
func (t *Table) Format(f fmt.State, _ rune) { io.WriteString(f, "redact.Table") }

// Learn hides secret from now on. White space around it is not part of it: a value from a file ends in
// a newline, its copies do not. A secret of white space alone hides nothing. One of fewer than four bytes
// is found as it is and escaped, but not in hex or base64, where it would be found everywhere. A secret
// keeps the category it was first learned under.
func (t *Table) Learn(category, secret string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learn(category, secret)
}

// learn is Learn for who holds t.mu.
func (t *Table) learn(category, secret string) {
	if v := visible(secret); strings.TrimSpace(v) != "" {
		secret = v
	}
	secret = strings.TrimSpace(secret)
	if secret == "" {
		return
	}
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
	st := t.newStream()
	st.all(s)
	return string(st.out), st.count
}

// Finding is a secret that was found: the bytes of the input from Start to End. Those that overlap another are
// cut, so that each byte is in one at most.
type Finding struct {
	Category Category `json:"category"`
	Start    int      `json:"start"`
	End      int      `json:"end"`
	Line     int      `json:"-"` // of the input that it begins in, counted from one
	Token    string   `json:"-"` // what stands in its place
}

// Find returns s redacted, and what was found, in order.
func (t *Table) Find(s string) (string, []Finding) {
	var found []Finding
	st := t.newStream()
	st.tell = func(f Finding) { found = append(found, f) }
	st.all(s)
	return string(st.out), found
}

// all takes a whole text. Memory for finds stays small, whatever is found.
func (s *stream) all(text string) {
	for len(text) > piece {
		s.feed([]byte(text[:piece]), false)
		text = text[piece:]
	}
	s.feed([]byte(text), true)
}

// plain holds when nothing could be found in s, whatever it holds.
func (t *Table) plain(s string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.rules == nil && t.index.size == 0 && !strings.Contains(s, mark) && !strings.Contains(s, beginMark)
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
