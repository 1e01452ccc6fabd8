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
	w.writeQuestion(q)
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
	subject = questionMAC(q, key)
	q.Session = ""
	// However the inputs are spelled, the arguments show the command that would run,
	q.Inputs = slices.DeleteFunc(slices.Clone(q.Inputs), func(in bailey.Input) bool {
		return in.Name != stdin // except for the input that the tool would read
	})
	return subject, questionMAC(q, key)
}

func questionMAC(q bailey.Question, key []byte) string {
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

// writeLine writes a word and its fields. Strings are quoted and numbers are not. A [bailey.Shown] is written as a
// commitment and a string, a [bailey.Secret] as a commitment alone.
func (w *writer) writeLine(word string, fields ...any) {
	w.WriteString(word)
	for _, f := range fields {
		w.WriteByte(' ')
		switch f := f.(type) {
		case int64:
			w.WriteString(strconv.FormatInt(f, 10))
		case keyword:
			w.WriteString(string(f))
		case string:
			w.WriteString(quoteASCII(f))
		case []string:
			w.WriteString(strconv.Itoa(len(f)))
			for _, s := range f {
				w.WriteString(" " + quoteASCII(s))
			}
		case bailey.Secret:
			w.writeCommitment(f)
		case bailey.Shown:
			w.writeCommitment(f.Value)
			w.WriteString(" " + quoteASCII(f.Text))
		}
	}
	w.WriteByte('\n')
}

func (w *writer) writeCommitment(s bailey.Secret) {
	w.WriteString(w.commit(w.n, s))
	w.n++
}

// keyword is a fixed word inside a line.
type keyword string

// writeList writes the count n, then one line for each element.
func (w *writer) writeList(word string, n int, each func(i int)) {
	w.writeLine(word, int64(n))
	for i := range n {
		each(i)
	}
}

func (w *writer) writeQuestion(q bailey.Question) {
	w.writeLine(version)
	w.writeLine("question", string(q.ID))
	w.writeLine("receipt", string(q.Receipt))
	w.writeLine("agent", q.Principal.Agent)
	w.writeLine("person", q.Principal.Person)
	w.writeLine("organisation", q.Principal.Organisation)
	w.writeList("roles", len(q.Principal.Roles), func(i int) { w.writeLine("role", q.Principal.Roles[i]) })
	w.writeLine("session", string(q.Session))
	w.writeLine("capability", string(q.Call))
	w.writeLine("manifest", q.Manifest)
	w.writeLine("impact", q.Impact)
	w.writeList("inputs", len(q.Inputs), func(i int) { w.writeLine("input", q.Inputs[i].Name, q.Inputs[i].Shown) })
	w.writeLine("resource", q.Resource.Kind, q.Resource.Name)
	w.writeLine("cwd", q.Dir)
	w.writeLine("contents", q.Contents)
	w.writeList("files", len(q.Files),
		func(i int) { w.writeLine("file", q.Files[i].Input, q.Files[i].Size, q.Files[i].SHA256) })
	w.writeList("preview", len(q.Preview.Argv), func(i int) { w.writeLine("previewed", q.Preview.Argv[i]) })
	if len(q.Preview.Argv) > 0 {
		w.writeLine("output", q.Preview.Output)
	}
	w.writeLine("binary", q.Binary, q.BinaryDigest)
	w.writeLine("cage", q.Cage, q.Plan)
	w.writeList("environment", len(q.EnvNames), func(i int) { w.writeLine("name", q.EnvNames[i]) })
	w.writeList("argv", len(q.Argv), func(i int) { w.writeLine("argument", q.Argv[i]) })
	w.writeList("leases", len(q.Leases), func(i int) {
		l := q.Leases[i]
		fields := []any{l.Name, l.Env, l.Adapter, l.Scope, keyword("ttl"), int64(l.TTL / time.Second)}
		if in := l.Inject; in != nil {
			fields = append(fields, keyword("inject"), in.To, keyword("headers"), in.Headers, keyword("query"),
				in.Query)
		}
		w.writeLine("lease", fields...)
	})
	if len(q.Egress) > 0 {
		w.writeList("egress", len(q.Egress), func(i int) { w.writeLine("reaches", q.Egress[i]) })
	}
	w.writeRules(q.Rules)
	w.writeLine("nonce", q.Nonce)
	w.writeLine("asked", formatTime(q.AskedAt))
	w.writeLine("expires", formatTime(q.Expires))
	w.writeLine("until", formatTime(q.Until))
	w.writeLine("end")
}

func (w *writer) writeRules(rules []bailey.Rule) {
	w.writeList("rules", len(rules), func(i int) {
		r := rules[i]
		w.writeLine("rule", string(r.ID), r.Digest, keyword("role"), r.Role, keyword("level"), string(r.Level),
			keyword("count"), int64(r.Count),
			keyword("ttl"), int64(r.TTL/time.Second), keyword("reason"), r.Reason)
	})
}

// GrantText returns the text of a standing grant.
func GrantText(g bailey.Grant) string {
	w := &writer{}
	w.writeLine(grantVersion)
	w.writeLine("grant", string(g.ID))
	w.writeLine("capability", string(g.Capability))
	w.writeLine("agent", g.Principal.Agent)
	w.writeLine("person", g.Principal.Person)
	w.writeLine("organisation", g.Principal.Organisation)
	w.writeRules(g.Rules)
	w.writeLine("nonce", g.Nonce)
	w.writeLine("given", formatTime(g.Given))
	w.writeLine("until", formatTime(g.Until))
	w.writeLine("end")
	return w.String()
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// quoteASCII returns s as printable ASCII in quotes. The result ends only at its closing quote and can be decoded again.
func quoteASCII(s string) string {
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
