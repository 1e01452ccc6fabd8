package approve

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"bailey"
)

// Namespace keeps a signature of an answer from standing for one of anything else, and the other way about.
const Namespace = "approval@bailey"

// version is the first line of a text, and keeps a commitment from standing for another hash.
const version = "bailey approval 1"

// maxQuestion bounds a question as JSON, in bytes: an entry of the ledger has 64 KiB in all.
const maxQuestion = 56 << 10

// canonical is a question's text with its digest. One that no entry of the ledger could hold is refused: what is not
// recorded whole cannot be asked.
func canonical(q bailey.Question, key []byte) (text, digest string, err error) {
	text = canon(q, key)
	sum := sha256.Sum256([]byte(text))
	q.Text, q.Digest = text, hex.EncodeToString(sum[:])
	b, err := json.Marshal(q)
	if err == nil && len(b) > maxQuestion {
		err = &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("the question would have %d bytes, and the ledger holds %d: nobody can be asked", len(b), maxQuestion),
			Hint: "pass less in the arguments of one call"}
	}
	return q.Text, q.Digest, err
}

// writer writes a text, line by line.
type writer struct {
	strings.Builder
	key   []byte
	nonce string
	n     uint64 // commitments so far
}

// line writes a word and its fields. Strings are quoted, numbers are not; a [bailey.Shown] is a commitment and a string.
func (w *writer) line(word string, fields ...any) {
	w.WriteString(word)
	for _, f := range fields {
		w.WriteByte(' ')
		switch f := f.(type) {
		case int:
			w.WriteString(strconv.Itoa(f))
		case bare:
			w.WriteString(string(f))
		case string:
			w.WriteString(quote(f))
		case bailey.Shown:
			w.WriteString(Commit(Salt(w.key, w.nonce, w.n), f.Value.Reveal()) + " " + quote(f.Text))
			w.n++
		}
	}
	w.WriteByte('\n')
}

// bare is a word inside a line.
type bare string

// list writes how many there are, and a line for each.
func (w *writer) list(word string, n int, each func(i int)) {
	w.line(word, n)
	for i := range n {
		each(i)
	}
}

func canon(q bailey.Question, key []byte) string {
	w := &writer{key: key, nonce: q.Nonce}
	w.line(version)
	w.line("question", string(q.ID))
	w.line("receipt", string(q.Receipt))
	w.line("agent", q.Principal.Agent)
	w.line("person", q.Principal.Person)
	w.line("organisation", q.Principal.Organisation)
	w.list("roles", len(q.Principal.Roles), func(i int) { w.line("role", q.Principal.Roles[i]) })
	w.line("session", string(q.Session))
	w.line("capability", string(q.Call))
	w.line("manifest", q.Manifest)
	w.line("impact", q.Impact)
	w.list("inputs", len(q.Inputs), func(i int) { w.line("input", q.Inputs[i].Name, q.Inputs[i].Shown) })
	w.line("resource", q.Resource.Kind, q.Resource.Name)
	w.line("cwd", q.Dir)
	w.line("contents", q.Contents)
	w.line("binary", q.Binary, q.BinaryDigest)
	w.line("cage", q.Cage, q.Plan)
	w.list("environment", len(q.EnvNames), func(i int) { w.line("name", q.EnvNames[i]) })
	w.list("argv", len(q.Argv), func(i int) { w.line("argument", q.Argv[i]) })
	w.list("rules", len(q.Rules), func(i int) {
		r := q.Rules[i]
		w.line("rule", string(r.ID), r.Digest, bare("role"), r.Role, bare("count"), r.Count, bare("ttl"), int(r.TTL/time.Second), bare("reason"), r.Reason)
	})
	w.line("nonce", q.Nonce)
	w.line("asked", q.AskedAt.UTC().Format(time.RFC3339Nano))
	w.line("expires", q.Expires.UTC().Format(time.RFC3339Nano))
	w.line("end")
	return w.String()
}

// quote writes a string so that it is printable ASCII, ends where its quotes do, and can be read back.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteByte(s[i])
		case r >= 0x20 && r <= 0x7e:
			b.WriteByte(s[i])
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x{%02x}`, s[i])
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
		i += n
	}
	b.WriteByte('"')
	return b.String()
}

// Salt is that of the n-th commitment of a text, counted from 0.
func Salt(key []byte, nonce string, n uint64) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(nonce))
	m.Write(binary.BigEndian.AppendUint64(nil, n))
	return m.Sum(nil)
}

// Commit is what stands in a text for a value.
func Commit(salt []byte, value string) string {
	h := sha256.New()
	h.Write([]byte(version + "\x00"))
	h.Write(salt)
	h.Write([]byte(value))
	return hex.EncodeToString(h.Sum(nil))
}
