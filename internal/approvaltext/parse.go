package approvaltext

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
	q := r.readQuestion()
	if err := r.checkCanonical(text, func(w *writer) { w.writeQuestion(q) }); err != nil {
		return bailey.Question{}, err
	}
	return q, nil
}

// ParseGrant reads the text of a standing grant.
func ParseGrant(text string) (bailey.Grant, error) {
	r := &reader{rest: text}
	r.nextLine(grantVersion)
	g := bailey.Grant{ID: bailey.GrantID(r.readStringLine("grant")),
		Capability: bailey.CapabilityID(r.readStringLine("capability"))}
	g.Principal = bailey.Principal{Agent: r.readStringLine("agent"), Person: r.readStringLine("person"),
		Organisation: r.readStringLine("organisation")}
	if strings.HasPrefix(r.rest, "session ") {
		g.Session = bailey.SessionID(r.readStringLine("session"))
	}
	g.Rules = r.readRules()
	g.Nonce = r.readStringLine("nonce")
	g.Given, g.Until = r.readTimeLine("given"), r.readTimeLine("until")
	r.nextLine("end")
	if err := r.checkCanonical(text, func(w *writer) { w.WriteString(GrantText(g)) }); err != nil {
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

// checkCanonical checks that no input is left, and that the parsed value encodes to the same text.
func (r *reader) checkCanonical(text string, write func(*writer)) error {
	if r.err == nil && r.rest != "" {
		r.setError("has more behind its end")
	}
	if r.err != nil {
		return r.err
	}
	w := &writer{commit: func(n uint64, _ bailey.Secret) string { return r.commits[n] }}
	if write(w); w.String() != text {
		r.setError("is not in its one form")
	}
	return r.err
}

func (r *reader) setError(format string, args ...any) {
	if r.err == nil {
		r.err = bailey.Invalid.New(fmt.Sprintf("line %d of the text "+format, append([]any{r.number}, args...)...),
			"bailey approvals show ID --text prints one")
	}
}

// nextLine goes to the next line, which must begin with word.
func (r *reader) nextLine(word string) {
	r.number++
	if r.number == 1 && len(r.rest) > MaxText {
		r.setError("has %d bytes, but a text has at most %d", len(r.rest), MaxText)
	}
	line, rest, ok := strings.Cut(r.rest, "\n")
	tail, found := strings.CutPrefix(line, word)
	if !ok || !found || tail != "" && tail[0] != ' ' {
		r.setError("is not a line %q", word)
	}
	if r.err != nil {
		r.rest, r.fields = "", nil
		return
	}
	r.rest, r.fields = rest, splitFields(tail)
}

// splitFields splits a line at the spaces outside strings.
func splitFields(s string) (fields []string) {
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

// nextField returns the next field.
func (r *reader) nextField() string {
	if len(r.fields) == 0 {
		r.setError("is too short")
		return ""
	}
	f := r.fields[0]
	r.fields = r.fields[1:]
	return f
}

func (r *reader) readString() string {
	s, ok := unquoteASCII(r.nextField())
	if !ok {
		r.setError("has a field that is not a string")
	}
	return s
}

func (r *reader) readInt() int64 {
	n, err := strconv.ParseInt(r.nextField(), 10, 64)
	if err != nil || n < 0 {
		r.setError("has a field that is not a number")
	}
	return n
}

// readStrings reads a count and that many strings.
func (r *reader) readStrings() (list []string) {
	for n := r.readInt(); n > 0 && r.err == nil; n-- {
		list = append(list, r.readString())
	}
	return list
}

// expectWord skips the next field, which must be the fixed word w.
func (r *reader) expectWord(w string) {
	if r.nextField() != w {
		r.setError("lacks %q", w)
	}
}

func (r *reader) readCommitment() {
	c := r.nextField()
	if len(c) != 64 || strings.Trim(c, "0123456789abcdef") != "" {
		r.setError("has a field that is not a commitment")
	}
	r.commits = append(r.commits, c)
}

func (r *reader) readShown() bailey.Shown {
	r.readCommitment()
	return bailey.Shown{Text: r.readString()}
}

// readStringLine reads a line that holds one string.
func (r *reader) readStringLine(word string) string {
	r.nextLine(word)
	return r.readString()
}

func (r *reader) readTimeLine(word string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, r.readStringLine(word))
	if err != nil {
		r.setError("has no time")
	}
	return t
}

// readList reads a count and calls each that many times. It stops at the first error. Because MaxText bounds the text, a
// count that is too large runs out of lines and costs nothing.
func (r *reader) readList(word string, each func()) {
	r.nextLine(word)
	n := r.readInt()
	for range n {
		if r.err != nil {
			return
		}
		each()
	}
}

// readBound reads the directories of a repository, if there are any.
func (r *reader) readBound() (list []bailey.BoundDir) {
	if !strings.HasPrefix(r.rest, "bound ") {
		return nil
	}
	r.readList("bound", func() {
		r.nextLine("directory")
		b := bailey.BoundDir{}
		switch mode := r.nextField(); mode {
		case "write":
			b.Write = true
		case "read":
		default:
			r.setError("has the mode %q", mode)
		}
		b.Path = r.readShown()
		list = append(list, b)
	})
	return list
}

func (r *reader) readQuestion() (q bailey.Question) {
	r.nextLine(version)
	q.ID, q.Receipt = bailey.ApprovalID(r.readStringLine("question")), bailey.ReceiptID(r.readStringLine("receipt"))
	q.Principal = bailey.Principal{Agent: r.readStringLine("agent"), Person: r.readStringLine("person"),
		Organisation: r.readStringLine("organisation")}
	r.readList("roles", func() { q.Principal.Roles = append(q.Principal.Roles, r.readStringLine("role")) })
	q.Session, q.Call = bailey.SessionID(r.readStringLine("session")), bailey.CapabilityID(r.readStringLine("capability"))
	q.Manifest, q.Impact = r.readStringLine("manifest"), r.readStringLine("impact")
	r.readList("inputs", func() {
		r.nextLine("input")
		q.Inputs = append(q.Inputs, bailey.Input{Name: r.readString(), Shown: r.readShown()})
	})
	r.nextLine("resource")
	q.Resource = bailey.Target{Kind: r.readString(), Name: r.readString()}
	r.nextLine("cwd")
	q.Dir = r.readShown()
	q.Bound = r.readBound()
	q.Contents = r.readStringLine("contents")
	r.readList("files", func() {
		r.nextLine("file")
		q.Files = append(q.Files, bailey.FrozenFile{Input: r.readString(), Size: r.readInt()})
		r.readCommitment()
	})
	r.readList("preview", func() {
		r.nextLine("previewed")
		q.Preview.Argv = append(q.Preview.Argv, r.readShown())
	})
	if len(q.Preview.Argv) > 0 {
		r.nextLine("output")
		q.Preview.Output = r.readShown()
	}
	r.nextLine("binary")
	q.Binary, q.BinaryDigest = r.readShown(), r.readString()
	r.nextLine("cage")
	q.Cage, q.Plan = r.readString(), r.readShown()
	r.readList("environment", func() { q.EnvNames = append(q.EnvNames, r.readStringLine("name")) })
	r.readList("argv", func() {
		r.nextLine("argument")
		q.Argv = append(q.Argv, r.readShown())
	})
	r.readList("leases", func() {
		r.nextLine("lease")
		l := bailey.LeaseScope{Name: r.readString(), Env: r.readString(), Adapter: r.readString(),
			Scope: r.readString()}
		r.expectWord("ttl")
		l.TTL = time.Duration(r.readInt()) * time.Second
		if len(r.fields) > 0 {
			r.expectWord("inject")
			l.Inject = &bailey.InjectWant{To: r.readStrings()}
			r.expectWord("headers")
			l.Inject.Headers = r.readStrings()
			r.expectWord("query")
			l.Inject.Query = r.readStrings()
		}
		q.Leases = append(q.Leases, l)
	})
	if strings.HasPrefix(r.rest, "egress ") {
		r.readList("egress", func() { q.Egress = append(q.Egress, r.readStringLine("reaches")) })
	}
	q.Rules = r.readRules()
	q.Nonce = r.readStringLine("nonce")
	q.AskedAt, q.Expires, q.Until = r.readTimeLine("asked"), r.readTimeLine("expires"), r.readTimeLine("until")
	r.nextLine("end")
	return q
}

func (r *reader) readRules() (rules []bailey.Rule) {
	r.readList("rules", func() {
		r.nextLine("rule")
		rule := bailey.Rule{ID: bailey.RuleID(r.readString()), Digest: r.readString()}
		r.expectWord("role")
		rule.Role = r.readString()
		r.expectWord("level")
		rule.Level = bailey.Level(r.readString())
		r.expectWord("count")
		rule.Count = int(r.readInt())
		r.expectWord("ttl")
		rule.TTL = time.Duration(r.readInt()) * time.Second
		r.expectWord("reason")
		rule.Reason = r.readString()
		if len(r.fields) > 0 {
			r.expectWord("for")
			r.expectWord("session")
			rule.Session = true
		}
		rules = append(rules, rule)
	})
	return rules
}

// unquoteASCII decodes a string in the form that quote writes. If it also accepts another form, whole finds the difference.
func unquoteASCII(s string) (string, bool) {
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
		rest, ok := decodeEscape(&b, s[1:])
		if !ok {
			return "", false
		}
		s = rest
	}
	return b.String(), true
}

// decodeEscape decodes the characters after a backslash.
func decodeEscape(b *strings.Builder, s string) (rest string, ok bool) {
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
