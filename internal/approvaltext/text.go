// Package approvaltext writes the question put to a person as a canonical text, and parses such texts.
//
// A person answers a text, and the text holds everything that is asked. It is ASCII, and every line ends with a line
// feed. A line is a word and its fields, each preceded by one space. A field is a decimal number, a commitment of 64
// lower-case hexadecimal digits, a fixed word such as ttl, or a string in double quotes. In a string the bytes 0x20 to
// 0x7e stand for themselves, except " and \, which are preceded by a \. Any other code point of valid UTF-8 is written
// as \u{ followed by its number in lower-case hexadecimal and }. A byte that is not part of valid UTF-8 is written as
// \x{ followed by two digits and }. Therefore a line feed in a value cannot end a line, and no two questions have the
// same text. The lines, in this order:
//
//	bailey approval 1
//	question "ID"
//	receipt "ID"
//	agent "NAME"
//	person "NAME"
//	organisation "NAME"
//	roles N, then N lines: role "NAME"
//	session "ID"
//	capability "ID"
//	manifest "DIGEST"
//	impact "SIDE EFFECT, REVERSIBILITY", and if no cage would hold the call
//	  "runs without a cage, SIDE EFFECT, REVERSIBILITY"
//	inputs N, then N lines in order of name: input "NAME" COMMITMENT "VALUE IN JSON"
//	resource "KIND" "NAME"
//	cwd COMMITMENT "PATH"
//	bound N, then N lines: directory read COMMITMENT "PATH", or with write; this part is absent unless the call is about
//	  a git repository of which cwd is only a part
//	contents "none", "bound" or "not bound"
//	files N, then N lines in order of input: file "INPUT" BYTES COMMITMENT
//	preview N, then N lines: previewed COMMITMENT "ARGUMENT", and if N is not 0 a line: output COMMITMENT "TEXT"
//	binary COMMITMENT "PATH" "DIGEST"
//	cage "KIND" COMMITMENT "DIGEST OF ITS PLAN"
//	environment N, then N lines: name "NAME"
//	argv N, then N lines: argument COMMITMENT "TEXT"
//	leases N, then N lines: lease "NAME" "ENV" "ADAPTER" "SCOPE" ttl SECONDS, followed, if the tool has a placeholder
//	  for the credential, by: inject N "PLACE" … headers N "NAME" … query N "NAME" …
//	egress N, then N lines: reaches "PLACE AND FLAGS"; this part is absent if the tool reaches nothing
//	rules N, then N lines: rule "ID" "DIGEST" role "ROLE" level "LEVEL" count COUNT ttl SECONDS reason "REASON", followed by:
//	  for session, if an answer lets through every later call of the session about which only such rules ask
//	nonce "32 HEXADECIMAL DIGITS"
//	asked "TIME"
//	expires "TIME"
//	until "TIME"
//	end
//
// Digests are SHA-256 in hexadecimal. Times are RFC 3339 in UTC with as many fractional digits as they need. A count of
// 0 means that the rule states no count. The session is "" if no caller can come back to the call. A question can be
// answered until the time in expires; a granted call must run by the time in until, or it never runs. contents
// describes the files and directories that the call names. They are bound if they are among the files, which were
// copied when the question was asked, or if the preview shows the relevant parts of them. They are not bound if they
// may change before the call runs. The text beside a commitment is redacted, and the output of a preview may be cut.
// The commitment is to the value itself (for a file, to the SHA-256 of its content in hexadecimal), so the text can be
// stored and shown, and later be compared with the call that ran:
//
//	salt       = HMAC-SHA-256(key, nonce as it stands | n)
//	commitment = SHA-256("bailey approval 1" | 0x00 | salt | value)
//
// n is eight bytes, big-endian, and counts the commitments of a text from 0 in their order. The key belongs to the home
// and is in no ledger. With one salt a party can check one value and cannot guess any other ([Salt], [Commit]).
//
// The digest of a question is the SHA-256 of its text. The signature is over the text itself, as SSHSIG in the
// namespace approval@bailey: ssh-keygen -Y verify -n approval@bailey verifies an answer from the ledger.
//
// # Standing grants
//
// A grant for more than one call is given to a text of its own, in the same form:
//
//	bailey grant 1
//	grant "ID"
//	capability "ID"
//	agent "NAME"
//	person "NAME"
//	organisation "NAME"
//	rules N, then N lines as above
//	nonce "32 HEXADECIMAL DIGITS"
//	given "TIME"
//	until "TIME"
//	end
package approvaltext

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
	if len(q.Bound) > 0 {
		w.writeList("bound", len(q.Bound), func(i int) {
			w.writeLine("directory", keyword(q.Bound[i].Mode()), q.Bound[i].Path)
		})
	}
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
		fields := []any{string(r.ID), r.Digest, keyword("role"), r.Role, keyword("level"), string(r.Level), keyword("count"),
			int64(r.Count), keyword("ttl"), int64(r.TTL / time.Second), keyword("reason"), r.Reason}
		if r.Session {
			fields = append(fields, keyword("for"), keyword("session"))
		}
		w.writeLine("rule", fields...)
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
	if g.Session != "" {
		w.writeLine("session", string(g.Session))
	}
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
