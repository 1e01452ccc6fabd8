package canon

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"bailey"
)

// MaxText bounds a text that is read, in bytes. An entry of the ledger holds less.
const MaxText = 64 << 10

// Parse reads the text of a question. The result holds only the values that may be read, and nothing beyond the text.
// If writing the result again does not give the same bytes, Parse returns an error.
func Parse(text string) (bailey.Question, error) {
	r := &reader{rest: text}
	q := r.question()
	if err := r.whole(text, func(w *writer) { w.question(q) }); err != nil {
		return bailey.Question{}, err
	}
	return q, nil
}

// ParseGrant reads the text of a standing grant.
func ParseGrant(text string) (bailey.Grant, error) {
	r := &reader{rest: text}
	r.line(grantVersion)
	g := bailey.Grant{ID: bailey.GrantID(r.text("grant")), Capability: bailey.CapabilityID(r.text("capability"))}
	g.Principal = bailey.Principal{Agent: r.text("agent"), Person: r.text("person"), Organisation: r.text("organisation")}
	g.Rules = r.rules()
	g.Nonce = r.text("nonce")
	g.Given, g.Until = r.time("given"), r.time("until")
	r.line("end")
	if err := r.whole(text, func(w *writer) { w.WriteString(GrantText(g)) }); err != nil {
		return bailey.Grant{}, err
	}
	return g, nil
}

// reader reads a text line by line. After an error, every value that it returns is empty.
type reader struct {
	rest    string
	number  int // of the current line
	fields  []string
	commits []string
	err     error
}

// whole checks that no input is left, and that the parsed value encodes to the same text.
func (r *reader) whole(text string, write func(*writer)) error {
	if r.err == nil && r.rest != "" {
		r.fail("has more behind its end")
	}
	if r.err != nil {
		return r.err
	}
	w := &writer{commit: func(n uint64, _ bailey.Secret) string { return r.commits[n] }}
	if write(w); w.String() != text {
		r.fail("is not in its one form")
	}
	return r.err
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("line %d of the text "+format, append([]any{r.number}, args...)...),
			Hint: "bailey approvals show ID --text prints one"}
	}
}

// line goes to the next line, which must begin with word.
func (r *reader) line(word string) {
	r.number++
	if r.number == 1 && len(r.rest) > MaxText {
		r.fail("stands in %d bytes, and a text has %d at most", len(r.rest), MaxText)
	}
	line, rest, ok := strings.Cut(r.rest, "\n")
	tail, found := strings.CutPrefix(line, word)
	if !ok || !found || tail != "" && tail[0] != ' ' {
		r.fail("is no line %q", word)
	}
	if r.err != nil {
		r.rest, r.fields = "", nil
		return
	}
	r.rest, r.fields = rest, split(tail)
}

// split splits a line at the spaces outside strings.
func split(s string) (fields []string) {
	quoted, start := false, 0
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == ' ' && !quoted:
			if i > 0 {
				fields = append(fields, s[start:i])
			}
			start = i + 1
		}
	}
	if start < len(s) {
		fields = append(fields, s[start:])
	}
	return fields
}

// next returns the next field.
func (r *reader) next() string {
	if len(r.fields) == 0 {
		r.fail("is too short")
		return ""
	}
	f := r.fields[0]
	r.fields = r.fields[1:]
	return f
}

func (r *reader) string() string {
	s, ok := unquote(r.next())
	if !ok {
		r.fail("has a field that is no string")
	}
	return s
}

func (r *reader) int() int64 {
	n, err := strconv.ParseInt(r.next(), 10, 64)
	if err != nil || n < 0 {
		r.fail("has a field that is no number")
	}
	return n
}

// strings reads a count and that many strings.
func (r *reader) strings() (list []string) {
	for n := r.int(); n > 0 && r.err == nil; n-- {
		list = append(list, r.string())
	}
	return list
}

// word skips the next field, which must be the fixed word w.
func (r *reader) word(w string) {
	if r.next() != w {
		r.fail("lacks %q", w)
	}
}

func (r *reader) commitment() {
	c := r.next()
	if len(c) != 64 || strings.Trim(c, "0123456789abcdef") != "" {
		r.fail("has a field that is no commitment")
	}
	r.commits = append(r.commits, c)
}

func (r *reader) shown() bailey.Shown {
	r.commitment()
	return bailey.Shown{Text: r.string()}
}

// text reads a line that holds one string.
func (r *reader) text(word string) string {
	r.line(word)
	return r.string()
}

func (r *reader) time(word string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, r.text(word))
	if err != nil {
		r.fail("has no time")
	}
	return t
}

// list reads a count and calls each that many times. It stops at the first error. Because MaxText bounds the text, a
// count that is too large runs out of lines and costs nothing.
func (r *reader) list(word string, each func()) {
	r.line(word)
	n := r.int()
	for range n {
		if r.err != nil {
			return
		}
		each()
	}
}

func (r *reader) question() (q bailey.Question) {
	r.line(version)
	q.ID, q.Receipt = bailey.ApprovalID(r.text("question")), bailey.ReceiptID(r.text("receipt"))
	q.Principal = bailey.Principal{Agent: r.text("agent"), Person: r.text("person"), Organisation: r.text("organisation")}
	r.list("roles", func() { q.Principal.Roles = append(q.Principal.Roles, r.text("role")) })
	q.Session, q.Call = bailey.SessionID(r.text("session")), bailey.CapabilityID(r.text("capability"))
	q.Manifest, q.Impact = r.text("manifest"), r.text("impact")
	r.list("inputs", func() {
		r.line("input")
		q.Inputs = append(q.Inputs, bailey.Input{Name: r.string(), Shown: r.shown()})
	})
	r.line("resource")
	q.Resource = bailey.Target{Kind: r.string(), Name: r.string()}
	r.line("cwd")
	q.Dir = r.shown()
	q.Contents = r.text("contents")
	r.list("files", func() {
		r.line("file")
		q.Files = append(q.Files, bailey.FrozenFile{Input: r.string(), Size: r.int()})
		r.commitment()
	})
	r.list("preview", func() {
		r.line("previewed")
		q.Preview.Argv = append(q.Preview.Argv, r.shown())
	})
	if len(q.Preview.Argv) > 0 {
		r.line("output")
		q.Preview.Output = r.shown()
	}
	r.line("binary")
	q.Binary, q.BinaryDigest = r.shown(), r.string()
	r.line("cage")
	q.Cage, q.Plan = r.string(), r.shown()
	r.list("environment", func() { q.EnvNames = append(q.EnvNames, r.text("name")) })
	r.list("argv", func() {
		r.line("argument")
		q.Argv = append(q.Argv, r.shown())
	})
	r.list("leases", func() {
		r.line("lease")
		l := bailey.LeaseScope{Name: r.string(), Env: r.string(), Adapter: r.string(), Scope: r.string()}
		r.word("ttl")
		l.TTL = time.Duration(r.int()) * time.Second
		if len(r.fields) > 0 {
			r.word("inject")
			l.Inject = &bailey.InjectWant{To: r.strings()}
			r.word("headers")
			l.Inject.Headers = r.strings()
			r.word("query")
			l.Inject.Query = r.strings()
		}
		q.Leases = append(q.Leases, l)
	})
	if strings.HasPrefix(r.rest, "egress ") {
		r.list("egress", func() { q.Egress = append(q.Egress, r.text("reaches")) })
	}
	q.Rules = r.rules()
	q.Nonce = r.text("nonce")
	q.AskedAt, q.Expires, q.Until = r.time("asked"), r.time("expires"), r.time("until")
	r.line("end")
	return q
}

func (r *reader) rules() (rules []bailey.Rule) {
	r.list("rules", func() {
		r.line("rule")
		rule := bailey.Rule{ID: bailey.RuleID(r.string()), Digest: r.string()}
		r.word("role")
		rule.Role = r.string()
		r.word("level")
		rule.Level = bailey.Level(r.string())
		r.word("count")
		rule.Count = int(r.int())
		r.word("ttl")
		rule.TTL = time.Duration(r.int()) * time.Second
		r.word("reason")
		rule.Reason = r.string()
		rules = append(rules, rule)
	})
	return rules
}

// unquote decodes a string in the form that quote writes. If it also accepts another form, whole finds the difference.
func unquote(s string) (string, bool) {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return "", false
	}
	s = s[1 : len(s)-1]
	var b strings.Builder
	for s != "" {
		if s[0] != '\\' {
			b.WriteByte(s[0])
			s = s[1:]
			continue
		}
		rest, ok := escaped(&b, s[1:])
		if !ok {
			return "", false
		}
		s = rest
	}
	return b.String(), true
}

// escaped decodes the characters after a backslash.
func escaped(b *strings.Builder, s string) (rest string, ok bool) {
	if s != "" && (s[0] == '"' || s[0] == '\\') {
		b.WriteByte(s[0])
		return s[1:], true
	}
	digits, rest, ok := strings.Cut(s, "}")
	if !ok || len(digits) < 3 || digits[1] != '{' {
		return "", false
	}
	n, err := strconv.ParseUint(digits[2:], 16, 32)
	switch {
	case err != nil:
		return "", false
	case digits[0] == 'u' && n <= utf8.MaxRune:
		b.WriteRune(rune(n))
	case digits[0] == 'x' && n < 256:
		b.WriteByte(byte(n))
	default:
		return "", false
	}
	return rest, true
}
