package canon

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"bailey"
)

// Namespace separates signatures of answers from all other signatures, so that neither kind can be used as the other.
const Namespace = "approval@bailey"

// version and grantVersion are the first lines of the texts. version also prefixes the hash input of a commitment, so
// that a commitment cannot be used as another hash.
const version, grantVersion = "bailey approval 1", "bailey grant 1"

// Text returns the text of a question.
func Text(q bailey.Question, key []byte) string {
	w := &writer{commit: func(n uint64, s bailey.Secret) string { return Commit(Salt(key, q.Nonce, n), s.Reveal()) }}
	w.question(q)
	return w.String()
}

// Digest returns the SHA-256 of a text in hexadecimal. The digest names the text.
func Digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// stdin is the name of the input that a tool may read (package pack). An input of this name with another meaning is
// also kept; as a result, two equal calls may be treated as different.
const stdin = "stdin"

// Subject returns two values. subject is the same for all questions about the same call in the same session, no matter
// when they are asked. alike is the same for all questions, in any session, that would run the same command, however
// their inputs are spelled. Without the key, neither value reveals the call.
func Subject(q bailey.Question, key []byte) (subject, alike string) {
	q.ID, q.Receipt, q.Nonce, q.AskedAt, q.Expires, q.Until = "", "", "", time.Time{}, time.Time{}, time.Time{}
	subject = about(q, key)
	q.Session = ""
	// However the inputs are spelled, the arguments show the command that would run,
	q.Inputs = slices.DeleteFunc(slices.Clone(q.Inputs), func(in bailey.Input) bool {
		return in.Name != stdin // except for the input that the tool would read
	})
	return subject, about(q, key)
}

func about(q bailey.Question, key []byte) string {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(Text(q, key)))
	return hex.EncodeToString(m.Sum(nil))
}

// writer writes a text line by line.
type writer struct {
	strings.Builder
	commit func(n uint64, value bailey.Secret) string
	n      uint64 // number of commitments so far
}

// line writes a word and its fields. Strings are quoted and numbers are not. A [bailey.Shown] is written as a
// commitment and a string, a [bailey.Secret] as a commitment alone.
func (w *writer) line(word string, fields ...any) {
	w.WriteString(word)
	for _, f := range fields {
		w.WriteByte(' ')
		switch f := f.(type) {
		case int64:
			w.WriteString(strconv.FormatInt(f, 10))
		case bare:
			w.WriteString(string(f))
		case string:
			w.WriteString(quote(f))
		case []string:
			w.WriteString(strconv.Itoa(len(f)))
			for _, s := range f {
				w.WriteString(" " + quote(s))
			}
		case bailey.Secret:
			w.committed(f)
		case bailey.Shown:
			w.committed(f.Value)
			w.WriteString(" " + quote(f.Text))
		}
	}
	w.WriteByte('\n')
}

func (w *writer) committed(s bailey.Secret) {
	w.WriteString(w.commit(w.n, s))
	w.n++
}

// bare is a fixed word inside a line.
type bare string

// list writes the count n, then one line for each element.
func (w *writer) list(word string, n int, each func(i int)) {
	w.line(word, int64(n))
	for i := range n {
		each(i)
	}
}

func (w *writer) question(q bailey.Question) {
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
	w.list("files", len(q.Files), func(i int) { w.line("file", q.Files[i].Input, q.Files[i].Size, q.Files[i].SHA256) })
	w.list("preview", len(q.Preview.Argv), func(i int) { w.line("previewed", q.Preview.Argv[i]) })
	if len(q.Preview.Argv) > 0 {
		w.line("output", q.Preview.Output)
	}
	w.line("binary", q.Binary, q.BinaryDigest)
	w.line("cage", q.Cage, q.Plan)
	w.list("environment", len(q.EnvNames), func(i int) { w.line("name", q.EnvNames[i]) })
	w.list("argv", len(q.Argv), func(i int) { w.line("argument", q.Argv[i]) })
	w.list("leases", len(q.Leases), func(i int) {
		l := q.Leases[i]
		fields := []any{l.Name, l.Env, l.Adapter, l.Scope, bare("ttl"), int64(l.TTL / time.Second)}
		if in := l.Inject; in != nil {
			fields = append(fields, bare("inject"), in.To, bare("headers"), in.Headers, bare("query"), in.Query)
		}
		w.line("lease", fields...)
	})
	if len(q.Egress) > 0 {
		w.list("egress", len(q.Egress), func(i int) { w.line("reaches", q.Egress[i]) })
	}
	w.rules(q.Rules)
	w.line("nonce", q.Nonce)
	w.line("asked", stamp(q.AskedAt))
	w.line("expires", stamp(q.Expires))
	w.line("until", stamp(q.Until))
	w.line("end")
}

func (w *writer) rules(rules []bailey.Rule) {
	w.list("rules", len(rules), func(i int) {
		r := rules[i]
		w.line("rule", string(r.ID), r.Digest, bare("role"), r.Role, bare("level"), string(r.Level), bare("count"), int64(r.Count),
			bare("ttl"), int64(r.TTL/time.Second), bare("reason"), r.Reason)
	})
}

// GrantText returns the text of a standing grant.
func GrantText(g bailey.Grant) string {
	w := &writer{}
	w.line(grantVersion)
	w.line("grant", string(g.ID))
	w.line("capability", string(g.Capability))
	w.line("agent", g.Principal.Agent)
	w.line("person", g.Principal.Person)
	w.line("organisation", g.Principal.Organisation)
	w.rules(g.Rules)
	w.line("nonce", g.Nonce)
	w.line("given", stamp(g.Given))
	w.line("until", stamp(g.Until))
	w.line("end")
	return w.String()
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// quote returns s as printable ASCII in quotes. The result ends only at its closing quote and can be decoded again.
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

// Salt returns the salt of the n-th commitment of a text, counted from 0.
func Salt(key []byte, nonce string, n uint64) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(nonce))
	m.Write(binary.BigEndian.AppendUint64(nil, n))
	return m.Sum(nil)
}

// Commit returns the commitment to value.
func Commit(salt []byte, value string) string {
	h := sha256.New()
	h.Write([]byte(version + "\x00"))
	h.Write(salt)
	h.Write([]byte(value))
	return hex.EncodeToString(h.Sum(nil))
}
