package review

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/policy"
)

func TestExplain(t *testing.T) {
	e := load(t, "// a file\n"+permitPush+askMain, `@id("wants-full") permit (principal, action == Action::"git.status", resource == Target::"local") when { context.input has limit && context.cage == "vm" } unless { context.unattended };`)
	x := Explain(e, push("ref", "main"))
	if x.Outcome != "ask" || x.Considered != 4 || len(x.Rules) != 1 || x.Rules[0].Source != "a.cedar:3" || x.Rules[0].Effect != "forbid" {
		t.Errorf("%+v", x)
	}
	if !strings.HasPrefix(x.Rules[0].Text, `@id("main-needs-human")`) || !strings.HasSuffix(x.Rules[0].Text, `"main-needs-human") };`) {
		t.Errorf("text %q", x.Rules[0].Text)
	}
	if len(x.Change) != 1 || x.Change[0] != "allowed after approval of main-needs-human: 2 of role sre, for 5m" {
		t.Errorf("change %q", x.Change)
	}
	if s := Explain(e, request("no\x1b[2J.such", nil)).String(); strings.Contains(s, "\x1b") {
		t.Errorf("%q reaches the terminal", s)
	}
	for _, part := range []string{"ask: git.push\nmain is released\n", "forbid main-needs-human at a.cedar:3\n  @id", "change it\n  allowed after approval", "4 rules"} {
		if !strings.Contains(x.String(), part) {
			t.Errorf("no %q in %s", part, x)
		}
	}
	for _, c := range []struct {
		input map[string]any
		spoil func(*bailey.Request)
		want  string
	}{
		{map[string]any{"repo": "."}, nil, "requires context.input has limit"},
		{map[string]any{"repo": ".", "limit": json.Number("1")}, nil, `requires context.cage == "vm"`},
		{map[string]any{"repo": "."}, func(r *bailey.Request) { r.Target = bailey.Target{Kind: "host", Name: "web1"} }, "requires another principal or resource"},
		{map[string]any{"repo": ".", "limit": json.Number("1")}, func(r *bailey.Request) { r.Cage, r.Session.Unattended = "vm", true }, "requires not (context.unattended)"},
	} {
		r := request("git.status", c.input)
		if c.spoil != nil {
			c.spoil(&r)
		}
		if x := Explain(e, r); x.Outcome != "deny" || len(x.Change) != 1 || !strings.Contains(x.Change[0], c.want) {
			t.Errorf("%+v, want %s", x, c.want)
		}
	}
	if x := Explain(e, request("disk.wipe", nil)); len(x.Change) != 1 || !strings.Contains(x.Change[0], `Action::"disk.wipe"`) {
		t.Errorf("%+v", x)
	}
	if _, err := json.Marshal(Explain(e, request("no.such", nil))); err != nil {
		t.Error(err)
	}
}

// TestForAgent checks that an agent gets only the reasons of the deciding rules, and no text or location of any rule.
func TestForAgent(t *testing.T) {
	const secret = "xyzzy" // a word that only conditions contain
	e := load(t, `@id("push") permit (principal, action == Action::"git.push", resource) when { context.dir != "`+secret+`" && context.cage != "vault" };
@id("status") @reason("looks") permit (principal, action == Action::"git.status", resource) when { context.environment == "`+secret+`" };
@id("wipe") permit (principal, action, resource) when { context.cage == "full" && context.dir != "`+secret+`" };
@id("asks") @reason("a release") @approval("role=sre") forbid (principal, action == Action::"git.push", resource)
when { context.input has ref && context.input.ref != "`+secret+`" && context.input.ref == "main" } unless { context.approvals.contains("asks") };
@id("night") @reason("not at night") forbid (principal, action == Action::"git.push", resource) when { context.time.hour == 3 && context.dir != "`+secret+`" };
@id("deep") @reason("too deep") forbid (principal, action == Action::"git.push", resource) when { context.input has depth && context.dir != "`+secret+`" && context.input.depth + 1 > 9000 };`)
	night := push()
	night.Time = night.Time.Add(4 * 3600e9)
	for _, c := range []struct {
		name    string
		req     bailey.Request
		outcome string
		reason  string
		rules   string
	}{
		{"allowed", push(), "allow", "allowed by push", "push wipe"},
		{"asked", push("ref", "main"), "ask", "a release", "asks"},
		{"forbidden", night, "deny", "not at night", "night"},
		{"broken", push("depth", json.Number("9223372036854775807")), "deny", "rule deep cannot be evaluated for this call", "deep"},
		{"unfit", push("depth", "x"), "deny", "input depth does not fit", ""},
		{"no rule", func() bailey.Request {
			r := request("git.status", map[string]any{"repo": "."})
			r.Cage = "none"
			return r
		}(), "deny", "no rule allows git.status", ""},
		{"irreversible", request("disk.wipe", nil), "deny", "is irreversible", ""},
		{"secrets", given("JWT"), "deny", "would receive restored secrets", ""},
		{"unknown", request("no.such", nil), "deny", "no action", ""},
	} {
		full := Explain(e, c.req)
		x := full.ForAgent()
		var ids []string
		for _, r := range x.Rules {
			ids = append(ids, string(r.ID))
		}
		if x.Outcome != c.outcome || !strings.Contains(x.Reason, c.reason) || strings.Join(ids, " ") != c.rules || x.Hint != full.Hint {
			t.Errorf("%s: %+v", c.name, x)
		}
		b, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{secret, "vault", "a.cedar", "forbid (", "permit (", "9000"} {
			if strings.Contains(string(b), word) || strings.Contains(x.String(), word) {
				t.Errorf("%s: %q is told: %s\n%s", c.name, word, b, x)
			}
		}
		if c.rules != "" && !strings.Contains(full.String(), secret) {
			t.Errorf("%s: the full explanation has no %q, so that this test sees nothing: %s", c.name, secret, full)
		}
	}
}

// TestExplainTerms checks that an explanation states how an approver must prove identity, and why a rule is broken.
func TestExplainTerms(t *testing.T) {
	touch := `@id("a") @reason("x") @approval("role=sre,level=signed-touch") forbid (principal, action == Action::"git.push", resource) unless { context.approvals.contains("a") };`
	x := Explain(load(t, permitPush, touch), push())
	if text := strings.Join(x.Change, "\n"); !strings.Contains(text, "allowed after approval of a: 1 of role sre, with a touched key, for 10m") {
		t.Errorf("%q", text)
	}
	big := json.Number("9223372036854775807")
	forbid := `@id("f") @reason("deep") forbid (principal, action == Action::"git.push", resource) when { context.input has depth && context.input.depth + 1 > 5 };`
	if x := Explain(load(t, permitPush, forbid), push("depth", big)); len(x.Change) != 1 || x.Change[0] != "denied until f at b.cedar:1 can be evaluated: integer overflow while attempting to add `9223372036854775807` with `1`" {
		t.Errorf("%q", x.Change)
	}
}

// TestExplainAgrees checks with random policies that an explanation has the outcome of the decision.
func TestExplainAgrees(t *testing.T) {
	ktest.Long(t)
	d := seeded(7)
	for range 400 {
		var b strings.Builder
		for i := range 1 + d.IntN(12) {
			if text := d.rule(i); loads(b.String() + text) {
				b.WriteString(text)
			}
		}
		e := load(t, b.String())
		for range 25 {
			r := d.request()
			if x, got := Explain(e, r), e.Decide(r); x.Outcome != got.Effect.String() {
				t.Fatalf("%v explained as %s\n%s", got.Effect, x.Outcome, b.String())
			}
		}
	}
}

// TestExplainLargeRules checks that an explanation of the largest rules takes seconds, unless the time is quadratic.
func TestExplainLargeRules(t *testing.T) {
	ktest.Long(t)
	for name, text := range map[string]string{
		"one MiB of rules":   manyRules(1 << 20),
		"one MiB of comment": "//" + strings.Repeat("a", 1<<20) + "\n" + permitAll,
		"ands":               when("context.writes" + strings.Repeat("&&context.writes", 3500)),
		"ors":                when("context.writes" + strings.Repeat("||context.writes", 3500)),
		"sums":               when("1" + strings.Repeat("+1", 30000) + " == context.time.hour"),
		"ifs":                when(strings.Repeat("if context.writes then true else ", 1500) + "false"),
		"names":              when("[" + strings.Repeat(`"aaaaaaaaaaaaa",`, 3000) + `"a"].contains(context.dir)`),
		"has":                when("context.input has ref" + strings.Repeat(" && context.input has ref", 2000)),
		"chain":              when("context.input has " + strings.Repeat("meta.", 2000) + "owner && true || context.writes"),
	} {
		start := time.Now()
		Explain(load(t, text), push())
		if d := time.Since(start); d > 2*time.Minute {
			t.Errorf("%s took %v", name, d)
		}
	}
}

func TestConcurrent(t *testing.T) {
	e := load(t, permitPush+askMain)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if x := Explain(e, push("ref", "main")); x.Outcome != "ask" {
					t.Errorf("%+v", x)
				}
			}
		})
	}
	wg.Wait()
}

// FuzzExplain checks that no policy causes a panic in an explanation, and that it has the outcome of the decision.
func FuzzExplain(f *testing.F) {
	f.Add(string(policy.Starter().Text))
	f.Add(permitAll + permitPush + askMain)
	f.Add(when(`context.input has meta && context.input.meta.owner like "a*"`))
	f.Add(when(`if context.writes then -context.time.hour < 3 else ["a", "b"].containsAny(context.paths)`))
	f.Add(when(`principal is Agent && {a: 1, "b": [true]}.a == 1`))
	reqs := []bailey.Request{push("ref", "main"), push("score", 1.5), request("disk.wipe", nil), request("system.echo", nil)}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := tryLoad(text)
		if err != nil {
			return
		}
		for _, r := range reqs {
			if x, d := Explain(e, r), e.Decide(r); x.Outcome != d.Effect.String() {
				t.Fatalf("%v explained as %s", d.Effect, x.Outcome)
			}
		}
	})
}
