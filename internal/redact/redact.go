// Package redact replaces secrets by tokens and restores secrets from tokens.
//
// A [Table] is the map of one session. It exists only in memory. Each find becomes a token
//
//	[REDACTED_CATEGORY_N]
//
// CATEGORY has A-Z, 0-9 and underscores and begins with a letter. N counts from one in each category. The same text has
// the same token for the lifetime of the table. Every table finds:
//
//   - every secret given to [Table.Learn], anywhere in the text: as it is, in base64 (both alphabets, at each of the
//     three alignments, with the characters that it shares with its neighbours), in hex, percent-encoded or escaped for
//     JSON. Each encoded form is a separate text with its own token; otherwise a token could not tell which text it
//     replaces.
//   - private key blocks, category PRIVATE_KEY: see block.
//
// A table of [Rules] also finds:
//
//   - tokens of services by their prefix (data/*prefixes.txt) or format (JWT, Discord, Telegram, Twilio), password
//     hashes, keys without armour, credential files, addresses;
//   - values by the text before them: a name (password=…, "token": …, <apiKey>…), a flag, a header, user and password
//     of a URL, a line of .netrc or .pgpass, the name of a service (data/*services.txt). The name, the separator and
//     the appearance of the value decide together: see finder, key, judge;
//   - values in a YAML block under such a name, line by line; lines of a private key without its first and last line;
//   - all of these under up to three layers of base64, with terminal escapes inside, in UTF-16, and if the signs around
//     them are encoded for HTML, a URL, JSON or JavaScript, or for two of these;
//   - custom patterns, line by line: see [Pattern].
//
// Text that only resembles a secret is left alone: for example digests, identifiers, versions, variables, names of
// program objects and placeholders. Checksums in the tokens of some services are not verified, because a truncated or
// mistyped token should still be hidden.
//
// If two finds overlap, all bytes of both are hidden: the leftmost find (the longest of several) gets a token, and then
// the rest of the other.
//
// # Data that looks like a token
//
// Every "[REDACTED_" in the data gets a second underscore, "[REDACTED__". A category begins with a letter, so the two
// cannot be confused, and [Table.Restore] removes exactly that underscore. For every text x
//
//	Restore(Text(x)) == x
//
// as long as the table has room. Text is therefore not idempotent: if redacted text is redacted again, its tokens are
// escaped.
//
// # Restoring
//
// Addresses and tenant names are pseudonyms; every other find is a secret. [Table.Give] restores only the categories
// that a [Grant] allows, and reports them. It must be called only once for each input, because a text whose escape it
// has removed looks like a token again.
//
// # Streams
//
// A [Writer] has the same finds however its text is split. It holds back only text that could still become a find: a
// word that has not ended (at most 16 KiB; a prompt that ends in a space is written at once), the value after a name
// that expects one (4 KiB), base64 in full lines (16 KiB), a URL with a user, a JSON object that begins like a
// credential file (8 KiB), the beginning of a learned secret, an open key block (64 KiB), and a line in which a custom
// pattern may match (4 KiB). Longer secrets are hidden in pieces. Close writes the rest.
//
// # Limits
//
// A table keeps at most [MaxEntries] texts with a total of [MaxBytes]. Further finds are replaced by
// [REDACTED_CATEGORY_X], the same for all of them, which Restore leaves unchanged.
package redact

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	MaxEntries = 10_000   // texts that have a token
	MaxBytes   = 16 << 20 // total bytes of these texts
)

const (
	mark    = "[REDACTED_"
	escaped = mark + "_"
)

// Table is the token map of one session. It is safe for concurrent use. Printing it does not reveal its contents.
type Table struct {
	mu     sync.RWMutex
	index  index             // patterns to search for
	known  map[string]bool   // secrets in the index
	tokens map[string]string // text → token
	texts  map[string]string // token → text
	last   map[string]int    // category → its highest number
	floor  int               // highest number of a category that is not in last
	bytes  int               // of all texts
	given  map[string]bool   // learned from calls
	rules  *Rules            // nil: only learned secrets and key blocks are found
}

// NewTable returns an empty table without rules. It finds only learned secrets and key blocks. [Compile] provides the
// built-in rules.
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

// Learn hides secret from now on. Surrounding white space is removed, because a value from a file ends in a newline and
// its copies do not. A secret of only white space is ignored. If a secret has fewer than four bytes, only the plain and
// escaped forms are searched for, because hex and base64 forms would match everywhere. A secret keeps its first
// category.
func (t *Table) Learn(category, secret string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learnLocked(category, secret)
}

// learnLocked is Learn for a caller that holds t.mu.
func (t *Table) learnLocked(category, secret string) {
	if v := stripInvisible(secret); strings.TrimSpace(v) != "" {
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
	category = cleanCategory(category)
	for _, f := range secretForms(secret) {
		t.index.addPattern(pattern{f, category})
	}
}

// cleanCategory converts any text to a category: A-Z, 0-9 and underscores, with a letter first, at most 32.
func cleanCategory(category string) string {
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

// Text returns s redacted, and the number of tokens used.
func (t *Table) Text(s string) (string, int) {
	return jsonView{t, false}.redactText(s)
}

// Finding is a secret that was found: the bytes of the input from Start to End. Overlapping findings are cut, so that
// each byte belongs to at most one.
type Finding struct {
	Category Category `json:"category"`
	Start    int      `json:"start"`
	End      int      `json:"end"`
	Line     int      `json:"-"` // line of the input in which it begins, counted from one
	Token    string   `json:"-"` // its replacement
}

// Generation changes whenever [Table.Text] may return something else than before for a text: if a secret was learned. A
// cache of redacted texts must be dropped then.
func (t *Table) Generation() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.index.size
}

// Find returns s redacted, and the findings in order.
func (t *Table) Find(s string) (string, []Finding) {
	var found []Finding
	st := t.newStream()
	st.tell = func(f Finding) { found = append(found, f) }
	st.feedAll(s)
	return string(st.out), found
}

// feedAll processes a whole text in pieces, so that the memory for finds stays small.
func (s *stream) feedAll(text string) {
	for len(text) > piece {
		s.feedPiece([]byte(text[:piece]), false)
		text = text[piece:]
	}
	s.feedPiece([]byte(text), true)
}

// isPlain reports whether s certainly contains no find and no mark.
func (t *Table) isPlain(s string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.rules == nil && t.index.size == 0 && !strings.Contains(s, mark) && !strings.Contains(s, beginMark)
}

// tokenFor returns the token of text. It creates a new one if necessary and if the table has room.
func (t *Table) tokenFor(category string, text []byte) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if token, ok := t.tokens[string(text)]; ok {
		return token
	}
	if len(t.tokens) >= MaxEntries || t.bytes+len(text) > MaxBytes {
		return mark + category + "_X]"
	}
	last, known := t.last[category]
	if !known {
		last = t.floor
	}
	t.last[category] = last + 1
	token := mark + category + "_" + strconv.Itoa(last+1) + "]"
	t.tokens[string(text)] = token
	t.texts[token] = string(text)
	t.bytes += len(text)
	return token
}

// Category is the kind of a find. It is part of the token. [Table.Learn] and custom patterns may use other categories.
type Category = string

// The built-in categories.
const (
	PrivateKey   Category = "PRIVATE_KEY"       // in text armour, whole or cut, also in base64; age and WireGuard keys
	Password     Category = "PASSWORD"          // in files, flags, headers and URLs
	PasswordHash Category = "PASSWORD_HASH"     // for example of shadow or htpasswd
	Connection   Category = "CONNECTION_STRING" // a URL or a list of settings that contains a password
	CloudKey     Category = "CLOUD_KEY"         // of AWS, Google Cloud, Azure, Alibaba
	APIKey       Category = "API_KEY"           // of a service, recognised by its format
	Token        Category = "TOKEN"             // named as a token, key or secret by the text before it
	JWT          Category = "JWT"               // RFC 7519
	AuthHeader   Category = "AUTH_HEADER"       // the text after Bearer, Basic or similar
	Cookie       Category = "COOKIE"            // of a session
	Webhook      Category = "WEBHOOK"           // a URL that is itself secret
	Credentials  Category = "CREDENTIALS"       // a whole credential file
	IPv4         Category = "IPV4"              // a pseudonym
	IPv6         Category = "IPV6"              // a pseudonym
	Host         Category = "HOST"              // a pseudonym: the name of a tenant
)

// Categories returns all built-in categories.
func Categories() []Category {
	return []Category{PrivateKey, Password, PasswordHash, Connection, CloudKey, APIKey, Token, JWT, AuthHeader, Cookie,
		Webhook,
		Credentials, IPv4, IPv6, Host}
}

// Pseudonym reports whether a category is an address or a name. These are hidden from the model but are not secrets.
func Pseudonym(c Category) bool { return slices.Contains([]Category{IPv4, IPv6, Host}, c) }

// Size returns how many texts have a token, and their total bytes. The number shows whether the table is worth keeping;
// the bytes are about half of its memory.
func (t *Table) Size() (texts, bytes int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.tokens), t.bytes
}
