package approvaltext

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
)

func secret(text, value string) bailey.Shown {
	return bailey.Shown{Text: text, Value: bailey.NewSecret(value)}
}

func plain(s string) bailey.Shown { return secret(s, s) }

func text(q bailey.Question, key []byte) string { return Text(q, key) }

// full returns a question with a value in every field.
func full() bailey.Question {
	return bailey.Question{
		ID: "a-01", Receipt: "r-01", Principal: bailey.Principal{Agent: "local", Person: "ada", Roles: []string{"dev"}}, Session: "s-01",
		Call: "git.push", Manifest: "0a", Impact: "mutating, externallyReversible", Resource: bailey.Target{Kind: "local"},
		Inputs: []bailey.Input{{Name: "to", Shown: secret(`"[REDACTED_PASSWORD_1]"`, `"pw"`)}},
		Argv:   []bailey.Shown{plain("git"), plain("push"), secret("https://[REDACTED_PASSWORD_1]@häuser\n", "https://pw@häuser\n")},
		Dir:    plain("/w"), Contents: bailey.NotBound,
		Files:   []bailey.FrozenFile{{Input: "body", Size: 7, SHA256: bailey.NewSecret("0f")}},
		Preview: bailey.Preview{Argv: []bailey.Shown{plain("git"), plain("log")}, Output: secret("one commit\n", "one commit by ada\n")},
		Leases:  []bailey.LeaseScope{{Name: "token", Env: "GH_TOKEN", Adapter: "env", Scope: "GH_TOKEN", TTL: 15 * time.Minute}},
		Binary:  plain("/usr/bin/git"), BinaryDigest: "0b", Cage: "full", Plan: plain("0c"), EnvNames: []string{"LANG"},
		Rules: []bailey.Rule{{ID: "main", Digest: "0d", Reason: `push to "main"`, Role: "sre", Level: bailey.SignedTouch, Count: 2, TTL: 10 * time.Minute}},
		Nonce: "00ff", AskedAt: time.Unix(1, 5e8), Expires: time.Unix(601, 5e8), Until: time.Unix(1201, 5e8),
	}
}

// outward returns the same question for a call with a network and with a credential that its tool does not get.
func outward() bailey.Question {
	q := full()
	q.Leases[0].Inject = &bailey.InjectWant{To: []string{"a.example:443", "*.b.example:443"}, Headers: []string{"Authorization"}}
	q.Egress = []string{"*.b.example:443", "a.example:443 private"}
	q.Rules[0].Session = true
	return q
}

// The lines of such a question that full does not have.
func ExampleText() {
	for line := range strings.Lines(text(outward(), []byte("key"))) {
		if !strings.Contains(text(full(), []byte("key")), line) {
			fmt.Print(line)
		}
	}
	// Output:
	// lease "token" "GH_TOKEN" "env" "GH_TOKEN" ttl 900 inject 2 "a.example:443" "*.b.example:443" headers 1 "Authorization" query 0
	// egress 2
	// reaches "*.b.example:443"
	// reaches "a.example:443 private"
	// rule "main" "0d" role "sre" level "signed-touch" count 2 ttl 600 reason "push to \"main\"" for session
}

// The text of a question, byte for byte, with the key "key".
func Example() {
	fmt.Print(text(full(), []byte("key")))
	fmt.Println(Commit(Salt([]byte("key"), "00ff", 10), "https://pw@häuser\n"))
	// Output:
	// bailey approval 1
	// question "a-01"
	// receipt "r-01"
	// agent "local"
	// person "ada"
	// organisation ""
	// roles 1
	// role "dev"
	// session "s-01"
	// capability "git.push"
	// manifest "0a"
	// impact "mutating, externallyReversible"
	// inputs 1
	// input "to" 6a631d533c710092d0364d549ec60b636696b20bb9b7cde372e9cf77aaf27ca4 "\"[REDACTED_PASSWORD_1]\""
	// resource "local" ""
	// cwd 3b5b5e1f452c3ec49668d439f19663e9753b4852bd2373495c58ff76e1ae427a "/w"
	// contents "not bound"
	// files 1
	// file "body" 7 8aa3bc3e43d68c0ecd17413d590223a317f0f4a240d469e918ca6f8591aa8f46
	// preview 2
	// previewed 5f0f10577d9dde2f3ae95deb6a6015e20b177bb8c5c08a8e304d0108f1aa7ba2 "git"
	// previewed e2af162f6ba8c8e7e2bec156fa67d261b99cdfc363a41ea8874f18b1cdc084c0 "log"
	// output 8762e21a76b168ca1b948de4e98dba4ad8fbceaedfeae42bc4fa1194ef539149 "one commit\u{a}"
	// binary 0aa6d269a4395eb8efce4758b3a5b001b68afae5ddcb5d6efd3d5276da901e55 "/usr/bin/git" "0b"
	// cage "full" 5d582e8713caab1291366e350f63504bd73e95ca8364658b97c9e54a5f44f976 "0c"
	// environment 1
	// name "LANG"
	// argv 3
	// argument 4b67731fe2ccb667ff64e66ddea0a7f6d47e5cccb022a0b30833a68b0f92aa92 "git"
	// argument 4c9f9654453fda922f1d621400fedddc1284ec2e0959c1ec93ef1acbd05ea6c4 "push"
	// argument 3383731e47129a997c5768ce60b25a523b4a424bdb2af29fed7b3832b2167092 "https://[REDACTED_PASSWORD_1]@h\u{e4}user\u{a}"
	// leases 1
	// lease "token" "GH_TOKEN" "env" "GH_TOKEN" ttl 900
	// rules 1
	// rule "main" "0d" role "sre" level "signed-touch" count 2 ttl 600 reason "push to \"main\""
	// nonce "00ff"
	// asked "1970-01-01T00:00:01.5Z"
	// expires "1970-01-01T00:10:01.5Z"
	// until "1970-01-01T00:20:01.5Z"
	// end
	// 3383731e47129a997c5768ce60b25a523b4a424bdb2af29fed7b3832b2167092
}

// TestHostileText checks that no text of a call can begin a line, end a field or control a terminal.
func TestHostileText(t *testing.T) {
	for _, s := range []string{"\nend\n", "x\"\nargument 00 \"y", "\r\x1b[2K\x1b[1A", "\u2028end", "\u202egnp.exe", "\x00", "\xff\xfe", `\`, `\"`, "\u0085", "日本", "\\u{a}", ""} {
		q := full()
		q.Argv[1], q.Dir, q.Resource.Name, q.Principal.Agent, q.EnvNames[0], q.Rules[0].Reason = plain(s), plain(s), s, s, s, s
		got := text(q, nil)
		if want := strings.Count(text(full(), nil), "\n"); strings.Count(got, "\n") != want {
			t.Errorf("%q: %d lines, want %d", s, strings.Count(got, "\n"), want)
		}
		wellFormed(t, got)
		readBack(t, got)
		if got, ok := unquoteASCII(quoteASCII(s)); got != s || !ok {
			t.Errorf("%q is read back as %q", s, got)
		}
	}
	a, b := full(), full()
	a.Argv, b.Argv = []bailey.Shown{plain("a"), plain("b c")}, []bailey.Shown{plain("a b"), plain("c")}
	if text(a, nil) == text(b, nil) {
		t.Error("two calls have one text")
	}
}

var field = `(?:[0-9]+|[0-9a-f]{64}|role|level|count|ttl|reason|inject|headers|query|"(?:[ !#-\[\]-~]|\\["\\]|\\[ux]\{[0-9a-f]+\})*")`

// wellFormed checks that each line is a word and fields, as the package comment requires.
func wellFormed(t *testing.T, text string) {
	t.Helper()
	form := regexp.MustCompile(`^(?:bailey approval 1|[a-z]+(?: ` + field + `)*)$`)
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if !form.MatchString(line) {
			t.Errorf("no line of a text: %q", line)
		}
	}
	if !strings.HasSuffix(text, "\nend\n") {
		t.Errorf("%q does not end", text)
	}
}

// readBack checks that a text can be parsed, and returns the question.
func readBack(t *testing.T, text string) bailey.Question {
	t.Helper()
	q, err := Parse(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return q
}

// TestParse checks that the parsed question equals the written one, without the values.
func TestParse(t *testing.T) {
	q := readBack(t, text(full(), []byte("key")))
	if q.ID != "a-01" || q.Principal.Roles[0] != "dev" || q.Argv[2].Text != "https://[REDACTED_PASSWORD_1]@häuser\n" || q.Argv[2].Value.Reveal() != "" ||
		q.Files[0].Size != 7 || q.Preview.Output.Text != "one commit\n" || q.Leases[0].TTL != 15*time.Minute || q.Rules[0] != full().Rules[0] ||
		!q.Expires.Equal(full().Expires) {
		t.Errorf("%+v", q)
	}
	if q := readBack(t, text(outward(), nil)); !reflect.DeepEqual(q.Leases, outward().Leases) || !slices.Equal(q.Egress, outward().Egress) ||
		q.Rules[0] != outward().Rules[0] {
		t.Errorf("%+v, %q", q.Leases, q.Egress)
	}
	g := bailey.Grant{ID: "g-1", Capability: "git.push", Principal: bailey.Principal{Agent: "a", Person: "p"}, Rules: full().Rules, Nonce: "0a", Given: time.Unix(1, 0), Until: time.Unix(3601, 0)}
	if got, err := ParseGrant(GrantText(g)); err != nil || got.ID != "g-1" || got.Rules[0] != g.Rules[0] || !got.Until.Equal(g.Until) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestOneForm checks that a text with one changed byte is either invalid or another question.
func TestOneForm(t *testing.T) {
	whole := text(full(), []byte("key"))
	for i := range whole {
		for _, c := range []string{"", " ", "\"", "\\", "0", "\n", "\r"} {
			changed := whole[:i] + c + whole[i+1:]
			if q, err := Parse(changed); err == nil && changed != whole && q.Nonce == "" {
				t.Fatalf("%q is read as %+v", changed, q)
			}
		}
	}
	out := text(outward(), nil)
	for _, bad := range []string{strings.Replace(whole, "rules 1", "egress 0\nrules 1", 1), strings.Replace(out, "inject 2", "inject 3", 1), strings.Replace(out, "inject 2", "inject 999999999999", 1),
		strings.Replace(out, "inject 2", "inject 1", 1), strings.Replace(out, " query 0", "", 1), strings.Replace(out, "egress 2", "egress 1", 1), "", "x", whole + "\n", whole + whole, whole[:len(whole)-1], strings.Replace(whole, "roles 1", "roles 01", 1), strings.Replace(whole, "roles 1", "roles 999999999", 1),
		strings.Replace(whole, "\"local\"", "\"\\u{6c}ocal\"", 1), strings.Replace(whole, "role ", "role  ", 1), strings.Replace(whole, "size", "size ", 1) + " ", strings.Replace(whole, "Z\"", "+00:00\"", 1),
		strings.Replace(whole, "\"00ff\"", "\"00ff\" \"x\"", 1), strings.Repeat("a", MaxText+1)} {
		if _, err := Parse(bad); err == nil || bailey.HintOf(err) == "" {
			t.Errorf("%.60q is read: %v", bad, err)
		}
	}
}

// FuzzParse checks that a grant that is parsed is written again as it was.
func FuzzParse(f *testing.F) {
	f.Add(text(full(), nil))
	f.Add(text(outward(), nil))
	f.Add(GrantText(bailey.Grant{ID: "g-1"}))
	f.Fuzz(func(t *testing.T, s string) {
		Parse(s)
		if g, err := ParseGrant(s); err == nil && GrantText(g) != s {
			t.Errorf("%q", s)
		}
	})
}

// TestSubject checks that equal calls have the same subject at any time, and the same second value of Subject in any
// session.
func TestSubject(t *testing.T) {
	of := func(change func(*bailey.Question)) [2]string {
		q := full()
		change(&q)
		a, b := Subject(q, []byte("key"))
		return [2]string{a, b}
	}
	base := of(func(*bailey.Question) {})
	if got := of(func(q *bailey.Question) {
		q.ID, q.Receipt, q.Nonce, q.AskedAt, q.Expires, q.Until = "a-9", "r-9", "09", time.Now(), time.Now(), time.Now()
	}); got != base {
		t.Error("the same call is another subject later")
	}
	if got := of(func(q *bailey.Question) { q.Session = "s-9" }); got[0] == base[0] || got[1] != base[1] {
		t.Error("a session is not what tells two subjects apart")
	}
	if got := of(func(q *bailey.Question) { q.Inputs[0].Shown = plain(`"./pw"`) }); got[0] == base[0] || got[1] != base[1] {
		t.Error("what is spelt otherwise and runs the same is not alike, or is the same call")
	}
	if got := of(func(q *bailey.Question) { q.Inputs = append(q.Inputs, bailey.Input{Name: "stdin", Shown: plain("x")}) }); got[0] == base[0] || got[1] == base[1] {
		t.Error("what the tool reads is no part of what would run")
	}
	if got := of(func(q *bailey.Question) { q.Argv[2] = secret(q.Argv[2].Text, "other") }); got[0] == base[0] || got[1] == base[1] {
		t.Error("another value is the same subject")
	}
}

// FuzzText checks that two arguments have the same quoted form only if they are equal, and that every text is
// well-formed.
func FuzzText(f *testing.F) {
	f.Add("a", "b")
	f.Add("\n", "\\u{a}")
	f.Add("\xff", "\\x{ff}")
	f.Fuzz(func(t *testing.T, a, b string) {
		if (quoteASCII(a) == quoteASCII(b)) != (a == b) {
			t.Errorf("%q and %q", a, b)
		}
		if got, ok := unquoteASCII(quoteASCII(a)); got != a || !ok {
			t.Errorf("%q is read back as %q", a, got)
		}
		q := full()
		q.Argv = []bailey.Shown{plain(a), plain(b)}
		wellFormed(t, text(q, nil))
		readBack(t, text(q, nil))
	})
}

// TestEverythingIsBound checks that a question has another text if one field differs.
func TestEverythingIsBound(t *testing.T) {
	base := text(full(), nil)
	for name, change := range map[string]func(*bailey.Question){
		"id": func(q *bailey.Question) { q.ID = "a-02" }, "receipt": func(q *bailey.Question) { q.Receipt = "r-02" },
		"agent": func(q *bailey.Question) { q.Principal.Agent = "x" }, "person": func(q *bailey.Question) { q.Principal.Person = "x" },
		"organisation": func(q *bailey.Question) { q.Principal.Organisation = "x" }, "roles": func(q *bailey.Question) { q.Principal.Roles = nil },
		"session": func(q *bailey.Question) { q.Session = "s-02" }, "capability": func(q *bailey.Question) { q.Call = "git.pull" },
		"manifest": func(q *bailey.Question) { q.Manifest = "1a" }, "impact": func(q *bailey.Question) { q.Impact = "none" },
		"resource": func(q *bailey.Question) { q.Resource.Kind = "host" }, "cwd": func(q *bailey.Question) { q.Dir = plain("/x") },
		"input":             func(q *bailey.Question) { q.Inputs[0].Name = "from" },
		"value of an input": func(q *bailey.Question) { q.Inputs[0].Value = bailey.NewSecret(`"other"`) },
		"contents":          func(q *bailey.Question) { q.Contents = bailey.NoContents },
		"file":              func(q *bailey.Question) { q.Files[0].Input = "x" }, "size of a file": func(q *bailey.Question) { q.Files[0].Size++ },
		"content of a file": func(q *bailey.Question) { q.Files[0].SHA256 = bailey.NewSecret("1f") }, "no file": func(q *bailey.Question) { q.Files = nil },
		"preview": func(q *bailey.Question) { q.Preview.Argv[1] = plain("diff") }, "no preview": func(q *bailey.Question) { q.Preview = bailey.Preview{} },
		"what it showed": func(q *bailey.Question) { q.Preview.Output = secret("one commit\n", "another\n") },
		"lease":          func(q *bailey.Question) { q.Leases[0].Name = "x" }, "variable of a lease": func(q *bailey.Question) { q.Leases[0].Env = "X" },
		"egress":   func(q *bailey.Question) { q.Egress = []string{"a.example:443"} },
		"injected": func(q *bailey.Question) { q.Leases[0].Inject = &bailey.InjectWant{} },
		"adapter":  func(q *bailey.Question) { q.Leases[0].Adapter = "file" }, "scope": func(q *bailey.Question) { q.Leases[0].Scope = "x" },
		"time of a lease": func(q *bailey.Question) { q.Leases[0].TTL = time.Hour }, "no lease": func(q *bailey.Question) { q.Leases = nil },
		"level":  func(q *bailey.Question) { q.Rules[0].Level = bailey.Local },
		"binary": func(q *bailey.Question) { q.Binary = plain("/bin/git") }, "binary digest": func(q *bailey.Question) { q.BinaryDigest = "1b" },
		"cage": func(q *bailey.Question) { q.Cage = "none" }, "plan": func(q *bailey.Question) { q.Plan = plain("1c") },
		"environment": func(q *bailey.Question) { q.EnvNames = nil }, "argument": func(q *bailey.Question) { q.Argv[1] = plain("pull") },
		"value behind a token": func(q *bailey.Question) { q.Argv[2] = secret(q.Argv[2].Text, "https://other@häuser\n") },
		"plan behind a word":   func(q *bailey.Question) { q.Plan = secret("0c", "1c") },
		"rule":                 func(q *bailey.Question) { q.Rules[0].ID = "x" }, "rule's digest": func(q *bailey.Question) { q.Rules[0].Digest = "1d" },
		"role": func(q *bailey.Question) { q.Rules[0].Role = "dev" }, "count": func(q *bailey.Question) { q.Rules[0].Count = 1 },
		"ttl": func(q *bailey.Question) { q.Rules[0].TTL = time.Minute }, "nonce": func(q *bailey.Question) { q.Nonce = "00fe" },
		"asked": func(q *bailey.Question) { q.AskedAt = q.AskedAt.Add(1) }, "expires": func(q *bailey.Question) { q.Expires = q.Expires.Add(1) },
		"until": func(q *bailey.Question) { q.Until = q.Until.Add(1) },
	} {
		q := full()
		if change(&q); text(q, nil) == base {
			t.Errorf("%s is not bound", name)
		}
	}
	base = text(outward(), nil)
	for name, change := range map[string]func(*bailey.Question){
		"where it goes":   func(q *bailey.Question) { q.Leases[0].Inject.To[0] = "x.example:443" },
		"how it goes":     func(q *bailey.Question) { q.Leases[0].Inject.Headers = []string{"X-Key"} },
		"header, query":   func(q *bailey.Question) { i := q.Leases[0].Inject; i.Headers, i.Query = i.Query, i.Headers },
		"not injected":    func(q *bailey.Question) { q.Leases[0].Inject = nil },
		"a flag of it":    func(q *bailey.Question) { q.Egress[1] = "a.example:443" },
		"reached nothing": func(q *bailey.Question) { q.Egress = nil },
	} {
		q := outward()
		if change(&q); text(q, nil) == base {
			t.Errorf("%s is not bound", name)
		}
	}
}
