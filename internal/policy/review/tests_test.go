package review

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/policy"
)

func parseTests(t testing.TB, text string) []policy.Test {
	t.Helper()
	tests, err := policy.ParseTests(policy.Source{Name: "main.test.yaml", Text: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// TestRuleTests checks that a rule test passes if the outcome and the rules are the expected ones, and otherwise
// reports the actual ones.
func TestRuleTests(t *testing.T) {
	night := `@id("night") @reason("nobody pushes at night") forbid (principal, action == Action::"git.push", resource) when { context.time.hour >= 22 };`
	e := load(t, permitPush+askMain+night)
	for _, c := range []struct{ name, text, want string }{
		{"ask", "call: git.push, input: {repo: ., ref: main}, expect: ask", ""},
		{"ask by its rule", "call: git.push, input: {repo: ., ref: main}, expect: ask, rules: [main-needs-human]", ""},
		{"allow", "call: git.push, input: {repo: ., ref: dev}, expect: allow, rules: [push]", ""},
		{"granted", "call: git.push, input: {repo: ., ref: main}, approvals: [main-needs-human], expect: allow", ""},
		{"deny", "call: git.push, input: {repo: .}, at: Saturday 23:30, expect: deny, rules: [night]", ""},
		{"deny by no rule", "call: git.status, input: {repo: .}, expect: deny, rules: []", ""},
		{"hour as written", `call: git.push, input: {repo: .}, at: "2026-11-20T23:00:00+09:00", expect: deny`, ""},
		{"integers are integers", "call: git.push, input: {repo: ., depth: 3}, expect: allow", ""},

		{"another outcome", "call: git.push, input: {repo: .}, expect: deny", "main.test.yaml:2: git.push repo=\".\": expected deny, got allow\n  allowed by push\n  by push at a.cedar:1"},
		{"another rule", "call: git.push, input: {repo: ., ref: main}, expect: ask, rules: [night]", "expected ask by night, got ask\n  main is released\n  by main-needs-human at a.cedar:2"},
		{"one rule too many", "call: git.push, input: {repo: .}, expect: allow, rules: [push, night]", "expected allow by push, night, got allow"},
		{"no rule expected", "call: git.push, input: {repo: .}, expect: allow, rules: []", "expected allow by no rule, got allow"},
		{"unknown action", "call: git.psuh, expect: deny", `expected deny, got error` + "\n  there is no action \"git.psuh\""},
		{"unknown grant", "call: git.push, input: {repo: .}, approvals: [main], expect: allow", `approvals names "main"`},
		{"grant of a rule that asks for none", "call: git.push, input: {repo: .}, approvals: [night], expect: allow", `approvals names "night"`},
		{"unknown rule", "call: git.push, input: {repo: .}, rules: [nigth], expect: deny", `rules names "nigth"`},
		{"float for an integer", "call: git.push, input: {repo: ., depth: 1.5}, expect: allow", "does not fit an integer"},
		{"null for text", "call: git.push, input: {repo: null}, expect: allow", "does not fit a string"},
	} {
		failed := RunTests(e, parseTests(t, "tests:\n  - {"+c.text+"}"), nil)
		switch {
		case c.want == "" && len(failed) != 0:
			t.Errorf("%s: %v", c.name, failed)
		case c.want != "" && (len(failed) != 1 || !strings.Contains(failed[0].String(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, failed, c.want)
		}
	}
	failed := RunTests(e, parseTests(t, "tests:\n- {name: n, call: git.push, input: {repo: .}, expect: ask, rules: [night]}"), nil)
	got, err := json.Marshal(failed)
	if want := `[{"source":"main.test.yaml:2","name":"n","expected":"ask","expectedRules":["night"],"got":"allow","rules":[{"id":"push","source":"a.cedar:1"}],"reason":"allowed by push"}]`; err != nil || string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestRuleTestFit checks that the manifest's check runs before the rules, and that its result for writes and egress is
// used unless the test sets them.
func TestRuleTestFit(t *testing.T) {
	e := load(t, permitAll+`@id("ro") @reason("nothing is written") forbid (principal, action, resource) when { context.writes };`)
	reach := map[string][]string{"far": {"a.example:443"}}
	fit := func(id bailey.CapabilityID, in map[string]any) (map[string]any, bool, []string, error) {
		if in["repo"] == "bad" {
			return nil, false, nil, errors.New("input /repo: is bad")
		}
		return map[string]any{"repo": in["repo"], "limit": json.Number("3")}, in["repo"] == "w", reach[fmt.Sprint(in["repo"])], nil
	}
	failed := RunTests(e, parseTests(t, `tests:
- {call: git.status, input: {repo: r, limit: "3"}, expect: allow}
- {call: git.status, input: {repo: w}, expect: deny, rules: [ro]}
- {call: git.status, input: {repo: w}, writes: false, expect: allow}
- {call: git.status, input: {repo: r}, writes: true, expect: deny}
- {call: git.status, input: {repo: bad}, expect: deny}
- {call: git.status, input: {repo: far}, expect: deny}
- {call: git.status, input: {repo: far}, egress: [], expect: allow}
- {call: git.status, input: {repo: r}, egress: ["a.example:443"], expect: deny}
`), fit)
	if len(failed) != 1 || failed[0].Source != "main.test.yaml:6" || !strings.Contains(failed[0].Reason, "before any rule is evaluated: input /repo: is bad") {
		t.Errorf("%v", failed)
	}
}

// TestRuleTestDefaults checks that a test has the defaults of the package comment, and that every key changes its part
// of the request.
func TestRuleTestDefaults(t *testing.T) {
	plain := bailey.Request{
		Capability: "a.b", Principal: bailey.Principal{Agent: "local"}, Session: bailey.Session{ID: "s-test"},
		Target: bailey.Target{Kind: "local"}, Input: map[string]any{}, Dir: "/workspace", Cage: "full",
		Time: time.Date(2026, 1, 7, 12, 0, 0, 0, time.UTC),
	}
	if plain.Time.Weekday() != time.Wednesday {
		t.Fatal("the default is no Wednesday")
	}
	for text, want := range map[string]func(*bailey.Request){
		"":                            func(*bailey.Request) {},
		"agent: codex":                func(r *bailey.Request) { r.Principal.Agent = "codex" },
		"person: ada":                 func(r *bailey.Request) { r.Principal.Person = "ada" },
		`person: ""`:                  func(*bailey.Request) {},
		"roles: [a, b]":               func(r *bailey.Request) { r.Principal.Roles = []string{"a", "b"} },
		"organisation: acme":          func(r *bailey.Request) { r.Principal.Organisation = "acme" },
		"target: host:web1":           func(r *bailey.Request) { r.Target = bailey.Target{Kind: "host", Name: "web1"} },
		"target: sandbox:a:b":         func(r *bailey.Request) { r.Target = bailey.Target{Kind: "sandbox", Name: "a:b"} },
		`at: "2026-11-20T14:00:00Z"`:  func(r *bailey.Request) { r.Time = time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC) },
		"at: Saturday 23:30":          func(r *bailey.Request) { r.Time = time.Date(2026, 1, 10, 23, 30, 0, 0, time.UTC) },
		"at: Wednesday 00:00":         func(r *bailey.Request) { r.Time = time.Date(2026, 1, 7, 0, 0, 0, 0, time.UTC) },
		"cage: none":                  func(r *bailey.Request) { r.Cage = "none" },
		"absent: [landlock]":          func(r *bailey.Request) { r.Absent = []string{"landlock"} },
		"changed: true":               func(r *bailey.Request) { r.Changed = true },
		"dir: /w":                     func(r *bailey.Request) { r.Dir = "/w" },
		"paths: {repo: /w}":           func(r *bailey.Request) { r.Paths = map[string]string{"repo": "/w"} },
		"restores: [JWT]":             func(r *bailey.Request) { r.Restores = []string{"JWT"} },
		"egress: [\"a.example:443\"]": func(r *bailey.Request) { r.Egress = []string{"a.example:443"} },
		"waivers: [fs.exec]":          func(r *bailey.Request) { r.Waivers = []string{"fs.exec"} },
		"unattended: true":            func(r *bailey.Request) { r.Session.Unattended = true },
		"environment: production":     func(r *bailey.Request) { r.Environ = "production" },
		"profile: work":               func(r *bailey.Request) { r.Profile = "work" },
		"approvals: [x]":              func(r *bailey.Request) { r.Approvals = []bailey.RuleID{"x"} },
		`input: {a: 1, "b": [x, {c: true}]}`: func(r *bailey.Request) {
			r.Input = map[string]any{"a": json.Number("1"), "b": []any{"x", map[string]any{"c": true}}}
		},
		"input: {a: 1.5, b: null, c: -7}": func(r *bailey.Request) {
			r.Input = map[string]any{"a": json.Number("1.5"), "b": nil, "c": json.Number("-7")}
		},
	} {
		r := plain
		want(&r)
		got := parseTests(t, "tests:\n- call: a.b\n  expect: deny\n  "+text)[0]
		if !reflect.DeepEqual(got.Request, r) {
			t.Errorf("%s: %+v, want %+v", text, got.Request, r)
		}
		if got.Writes != nil || got.Rules != nil || got.Expect != bailey.Deny {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// TestRuleTestsRefused checks that an invalid file of tests is refused with the place of the error.
func TestRuleTestsRefused(t *testing.T) {
	one := func(text string) string { return "tests:\n- call: a.b\n  expect: deny\n  " + text + "\n" }
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "t.yaml: has no tests"},
		{"a comment", "# x\n", "has no tests"},
		{"no list", "tests:\n", "t.yaml:1:8: tests must be a list"},
		{"an empty list", "tests: []\n", "has no tests"},
		{"a word", "tests", "t.yaml:1:1: a file of tests must have keys and values"},
		{"unknown key above", "test: []\n", `t.yaml:1:1: "test" is not a key of a file of tests; use tests`},
		{"unknown key", one("roless: [a]"), `t.yaml:4:3: "roless" is not a key of a test`},
		{"case variant of a key", one("Agent: a"), `t.yaml:4:3: "Agent"`},
		{"key twice", one("expect: allow"), "t.yaml:4:3: expect is here twice"},
		{"input twice", one("input: {a: 1, a: 2}"), "t.yaml:4:17: a is here twice"},
		{"input twice in depth", one("input: {a: {b: 1, b: 2}}"), "t.yaml:4:21: b is here twice"},
		{"no call", "tests:\n- expect: deny\n", "t.yaml:2:3: the test needs a call"},
		{"no expect", "tests:\n- call: a.b\n", "t.yaml:2:3: the test needs expect"},
		{"no test", "tests:\n- \n", "a test must have keys and values"},
		{"another outcome", "tests:\n- call: a.b\n  expect: maybe\n", "t.yaml:3:11: expect must be allow, ask or deny"},
		{"case variant of an outcome", "tests:\n- call: a.b\n  expect: Allow\n", "t.yaml:3:11: expect must be"},
		{"a number for text", one("agent: 7"), "t.yaml:4:10: must be text"},
		{"null for text", one("agent:"), "t.yaml:4:10: must be text"},
		{"empty agent", one(`agent: ""`), "agent is empty"},
		{"text for a list", one("roles: sre"), "t.yaml:4:10: must be a list"},
		{"a number in a list", one("roles: [1]"), "t.yaml:4:11: must be text"},
		{"text for a flag", one("unattended: yes"), "t.yaml:4:15: must be true or false"},
		{"text for a mapping", one("input: x"), "t.yaml:4:10: must have keys and values"},
		{"a list for a mapping", one("input: [x]"), "must have keys and values"},
		{"a number for a path", one("paths: {a: 1}"), "path a must be text"},
		{"unknown target", one("target: lokal"), `t.yaml:4:11: "lokal" is not a target`},
		{"no time", one("at: noon"), "t.yaml:4:7: at must be a time"},
		{"no hour", one("at: Saturday 24:00"), "at must be a time"},
		{"no day", one("at: Someday 12:00"), "at must be a time"},
		{"short hour", one("at: Saturday 9:00"), "at must be a time"},
		{"no time at all", one(`at: "0001-01-01T00:00:00Z"`), "at must be a time"},
		{"number of another base", one("input: {a: 0x10}"), "t.yaml:4:14: 0x10 is not a JSON number"},
		{"number with underscores", one("input: {a: 1_000}"), "is not a JSON number"},
		{"infinity", one("input: {a: .inf}"), "is not a valid input"},
		{"anchor", one("input: &a {x: 1}"), "anchors, aliases"},
		{"alias", one("input: *a"), "anchors, aliases"},
		{"merge key", one("<<: {a: 1}"), "anchors, aliases"},
		{"tag", one("input: !!str x"), "anchors, aliases"},
		{"two documents", one("agent: a") + "---\n" + one("agent: a"), "has 2 YAML documents"},
		{"no YAML", "tests: [", "t.yaml:1:"},
		{"hidden character", "# a\u202e\n", "t.yaml:1:1: invisible character U+202E"},
		{"escaped hidden character", one(`agent: "a\u202e"`), "must be one line of visible text"},
		{"invalid UTF-8", "# \xff", "invalid UTF-8"},
		{"too large", strings.Repeat("#", 1<<20+1), "at most 1048576 bytes"},
		{"deep in flow", one("input: {a: " + strings.Repeat("[", 100_000)), "nested too deeply"},
		{"deep in blocks", one("input:\n" + nested(200)), "nested too deeply"},
		{"deep on a line", one("input:\n    a:\n      " + strings.Repeat("- ", 1000) + "x"), "nested too deeply"},
	} {
		tests, err := policy.ParseTests(policy.Source{Name: "t.yaml", Text: []byte(c.text)})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "t.yaml") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if tests != nil || err != nil && (bailey.KindOf(err) != bailey.Invalid || bailey.HintOf(err) == "") {
			t.Errorf("%s: %v with kind %v, hint %q", c.name, tests, bailey.KindOf(err), bailey.HintOf(err))
		}
	}
}

func nested(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s a:\n", strings.Repeat(" ", 4+i))
	}
	return b.String()
}

// TestHostileTests checks that a file of maximal size is read or refused quickly.
func TestHostileTests(t *testing.T) {
	ktest.Long(t)
	const head = "tests:\n- call: a.b\n  expect: deny\n  input: "
	for name, text := range map[string]string{
		"many tests":   "tests:\n" + strings.Repeat("- {call: a.b, expect: deny}\n", 30_000),
		"many inputs":  head + "{" + manyKeys(50_000) + "}",
		"a long list":  head + "{a: [" + strings.Repeat("1,", 400_000) + "1]}",
		"a long text":  head + `{a: "` + strings.Repeat("x", 1<<19) + `"}`,
		"many lines":   strings.Repeat("\n", 1<<20-1),
		"many colons":  head + strings.Repeat("a: ", 1<<18),
		"many quotes":  head + strings.Repeat(`"`, 1<<19),
		"open comment": head + strings.Repeat("#", 1<<19),
	} {
		start := time.Now()
		_, err := policy.ParseTests(policy.Source{Name: "t.yaml", Text: []byte(text)})
		took := time.Since(start)
		t.Logf("%s: %v, %.100v", name, took, err)
		if took > 2*time.Minute { // a second, unless the time is quadratic
			t.Errorf("%s took %v", name, took)
		}
		if err != nil && len(err.Error()) > 4096 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: 1, ", i)
	}
	return b.String()
}

// FuzzTests checks that no text causes a panic when tests are read or run, and that no text in a test can add a line to
// the report.
func FuzzTests(f *testing.F) {
	f.Add("tests:\n- name: a\n  call: git.push\n  input: {repo: ., ref: main, depth: 3}\n  expect: ask\n  rules: [main-needs-human]\n")
	f.Add("tests:\n- {call: git.status, at: Saturday 23:30, target: host:web1, paths: {repo: /w}, writes: true, expect: deny}\n")
	f.Add("tests: [{call: x.y, expect: allow, approvals: [a], \"roles\": []}]")
	f.Add("tests:\n- call: |\n    git.push\n  expect: deny\n")
	e := load(f, permitPush+askMain)
	f.Fuzz(func(t *testing.T, text string) {
		tests, err := policy.ParseTests(policy.Source{Name: "t.yaml", Text: []byte(text)})
		if err != nil {
			if len(tests) != 0 || !strings.HasPrefix(err.Error(), "t.yaml") || strings.ContainsFunc(err.Error(), policy.IsHiddenRune) {
				t.Fatalf("%d tests, %q", len(tests), err)
			}
			return
		}
		failed := RunTests(e, tests, nil)
		if len(tests) == 0 || len(failed) > len(tests) {
			t.Fatalf("%d of %d tests fail", len(failed), len(tests))
		}
		for _, f := range failed {
			if strings.ContainsFunc(strings.ReplaceAll(f.String(), "\n", ""), policy.IsHiddenRune) {
				t.Fatalf("%q", f)
			}
		}
	})
}
