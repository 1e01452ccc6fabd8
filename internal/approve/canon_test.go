package approve

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"bailey"
)

func secret(text, value string) bailey.Shown {
	return bailey.Shown{Text: text, Value: bailey.NewSecret(value)}
}

// full is a question with something in every place.
func full() bailey.Question {
	return bailey.Question{
		ID: "a-01", Receipt: "r-01", Principal: bailey.Principal{Agent: "local", Person: "ada", Roles: []string{"dev"}}, Session: "s-01",
		Call: "git.push", Manifest: "0a", Impact: "mutating, externallyReversible", Resource: bailey.Target{Kind: "local"},
		Inputs: []bailey.Input{{Name: "to", Shown: secret(`"[REDACTED_PASSWORD_1]"`, `"pw"`)}},
		Argv:   []bailey.Shown{plain("git"), plain("push"), secret("https://[REDACTED_PASSWORD_1]@häuser\n", "https://pw@häuser\n")},
		Dir:    plain("/w"), Contents: bailey.NotBound, Binary: plain("/usr/bin/git"), BinaryDigest: "0b", Cage: "full", Plan: plain("0c"), EnvNames: []string{"LANG"},
		Rules: []bailey.Rule{{ID: "main", Digest: "0d", Reason: `push to "main"`, Role: "sre", Count: 2, TTL: 10 * time.Minute}},
		Nonce: "00ff", AskedAt: time.Unix(1, 5e8), Expires: time.Unix(601, 5e8),
	}
}

// The text of a question, byte for byte, with the key "key".
func Example() {
	fmt.Print(canon(full(), []byte("key")))
	fmt.Println(Commit(Salt([]byte("key"), "00ff", 6), "https://pw@häuser\n"))
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
	// binary 16241f2cac27af2b7e1e2969a83d22840f85c51e2cffbcfc53f27d5bf4533f74 "/usr/bin/git" "0b"
	// cage "full" 17f57f8017b9101a340c01f63c122bddbc98663f40fb139d5cfcf6816ae51076 "0c"
	// environment 1
	// name "LANG"
	// argv 3
	// argument c67b67689b41e6bc5fb3d91ae9ce8d36b3de2c0e4339cd36ae4e74d7b8eefcf9 "git"
	// argument c586164355727078c52e8aa95baf9ba8dd16a214bc5c1e5426f98743d58c0421 "push"
	// argument 8a0f1c869b1970709eb10f7ce38b22f77290d8763fb5745abe0f926564723da2 "https://[REDACTED_PASSWORD_1]@h\u{e4}user\u{a}"
	// rules 1
	// rule "main" "0d" role "sre" count 2 ttl 600 reason "push to \"main\""
	// nonce "00ff"
	// asked "1970-01-01T00:00:01.5Z"
	// expires "1970-01-01T00:10:01.5Z"
	// end
	// 8a0f1c869b1970709eb10f7ce38b22f77290d8763fb5745abe0f926564723da2
}

// TestHostileText: nothing that is asked begins a line, ends a field or reaches a terminal.
func TestHostileText(t *testing.T) {
	for _, s := range []string{"\nend\n", "x\"\nargument 00 \"y", "\r\x1b[2K\x1b[1A", "\u2028end", "\u202egnp.exe", "\x00", "\xff\xfe", `\`, `\"`, "\u0085", "日本", "\\u{a}", ""} {
		q := full()
		q.Argv[1], q.Dir, q.Resource.Name, q.Principal.Agent, q.EnvNames[0], q.Rules[0].Reason = plain(s), plain(s), s, s, s, s
		text := canon(q, nil)
		if want := strings.Count(canon(full(), nil), "\n"); strings.Count(text, "\n") != want {
			t.Errorf("%q: %d lines, want %d", s, strings.Count(text, "\n"), want)
		}
		wellFormed(t, text)
		if got := unquote(t, quote(s)); got != s {
			t.Errorf("%q is read back as %q", s, got)
		}
	}
	a, b := full(), full()
	a.Argv, b.Argv = []bailey.Shown{plain("a"), plain("b c")}, []bailey.Shown{plain("a b"), plain("c")}
	if canon(a, nil) == canon(b, nil) {
		t.Error("two calls have one text")
	}
}

var field = `(?:[0-9]+|[0-9a-f]{64}|role|count|ttl|reason|"(?:[ !#-\[\]-~]|\\["\\]|\\[ux]\{[0-9a-f]+\})*")`

// wellFormed wants lines of a word and fields, as the package comment has them.
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

// unquote reads a string of a text back.
func unquote(t *testing.T, s string) string {
	t.Helper()
	escape := regexp.MustCompile(`\\(?:u\{([0-9a-f]+)\}|x\{([0-9a-f]{2})\}|(["\\]))`)
	return escape.ReplaceAllStringFunc(s[1:len(s)-1], func(e string) string {
		var n int
		switch m := escape.FindStringSubmatch(e); {
		case m[1] != "":
			fmt.Sscanf(m[1], "%x", &n)
			return string(rune(n))
		case m[2] != "":
			fmt.Sscanf(m[2], "%x", &n)
			return string([]byte{byte(n)})
		default:
			return m[3]
		}
	})
}

// FuzzText: two arguments have one quoted form only where they are the same, and every text is well-formed.
func FuzzText(f *testing.F) {
	f.Add("a", "b")
	f.Add("\n", "\\u{a}")
	f.Add("\xff", "\\x{ff}")
	f.Fuzz(func(t *testing.T, a, b string) {
		if (quote(a) == quote(b)) != (a == b) {
			t.Errorf("%q and %q", a, b)
		}
		if got := unquote(t, quote(a)); got != a {
			t.Errorf("%q is read back as %q", a, got)
		}
		q := full()
		q.Argv = []bailey.Shown{plain(a), plain(b)}
		wellFormed(t, canon(q, nil))
	})
}

// TestEverythingIsBound: a question that differs in one thing has another text.
func TestEverythingIsBound(t *testing.T) {
	base := canon(full(), nil)
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
		"binary":            func(q *bailey.Question) { q.Binary = plain("/bin/git") }, "binary digest": func(q *bailey.Question) { q.BinaryDigest = "1b" },
		"cage": func(q *bailey.Question) { q.Cage = "none" }, "plan": func(q *bailey.Question) { q.Plan = plain("1c") },
		"environment": func(q *bailey.Question) { q.EnvNames = nil }, "argument": func(q *bailey.Question) { q.Argv[1] = plain("pull") },
		"value behind a token": func(q *bailey.Question) { q.Argv[2] = secret(q.Argv[2].Text, "https://other@häuser\n") },
		"plan behind a word":   func(q *bailey.Question) { q.Plan = secret("0c", "1c") },
		"rule":                 func(q *bailey.Question) { q.Rules[0].ID = "x" }, "rule's digest": func(q *bailey.Question) { q.Rules[0].Digest = "1d" },
		"role": func(q *bailey.Question) { q.Rules[0].Role = "dev" }, "count": func(q *bailey.Question) { q.Rules[0].Count = 1 },
		"ttl": func(q *bailey.Question) { q.Rules[0].TTL = time.Minute }, "nonce": func(q *bailey.Question) { q.Nonce = "00fe" },
		"asked": func(q *bailey.Question) { q.AskedAt = q.AskedAt.Add(1) }, "expires": func(q *bailey.Question) { q.Expires = q.Expires.Add(1) },
	} {
		q := full()
		if change(&q); canon(q, nil) == base {
			t.Errorf("%s is not bound", name)
		}
	}
}

// TestNoSecretInText, nor in what the ledger is given, nor in a list of what is open.
func TestNoSecretInText(t *testing.T) {
	q := New(Config{Note: (&book{}).note})
	in := question("a-1", false)
	in.Argv = append(in.Argv, secret("[REDACTED_PASSWORD_1]", "hunter2"))
	in.Inputs = full().Inputs
	if _, err := q.Ask(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	open := q.Open()[0]
	if strings.Contains(open.Text, "hunter2") || !strings.Contains(open.Text, `"[REDACTED_PASSWORD_1]"`) {
		t.Errorf("text %s", open.Text)
	}
	if got := open.Argv[2].Value.Reveal() + open.Inputs[0].Value.Reveal(); got != "" {
		t.Errorf("the queue keeps %q", got)
	}
	if in.Argv[2].Value.Reveal() != "hunter2" {
		t.Error("the caller's own was taken away")
	}
	sum := sha256.Sum256([]byte(open.Text))
	if open.Digest != hex.EncodeToString(sum[:]) || len(open.Nonce) != 32 {
		t.Errorf("digest %s, nonce %s", open.Digest, open.Nonce)
	}
}

// TestTooLong: what the ledger cannot hold whole is not asked.
func TestTooLong(t *testing.T) {
	b := &book{}
	in := question("a-1", true)
	in.Argv = append(in.Argv, plain(strings.Repeat("ä", 10<<10)))
	_, err := New(Config{Note: b.note}).Ask(t.Context(), in)
	if !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" || !strings.Contains(err.Error(), "nobody can be asked") {
		t.Error(err)
	}
	expect(t, b)
}
