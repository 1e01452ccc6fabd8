package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"bailey"
)

// The tests of this file attack a decision. Other tests cover: a key twice in one JSON object, which the MCP front end
// (TestArguments of internal/mcp) and the command line refuse; two packs with one name, or a capability in two packs,
// which no catalog loads (TestCatalogConflicts of pack); rules that change while a call waits, so that it is decided
// again, and a client that gives itself roles (TestRuleChangedWhileWaiting and TestClientIsContext of internal/gate).

// TestAttackInput checks that no value, missing value or name in an input evades a rule that reads it.
func TestAttackInput(t *testing.T) {
	e := load(t, permitPush+askMain, `@id("deep") @reason("too deep") forbid (principal, action == Action::"git.push", resource)
when { context.input has depth && context.input.depth * 2 > 100 };
@id("no-owner") @reason("nobody owns it") forbid (principal, action == Action::"git.push", resource)
when { context.input has meta && context.input.meta.owner == "" };`)
	n := func(s string) json.Number { return json.Number(s) }
	deep := any("main")
	for range 100_000 {
		deep = map[string]any{"inner": deep}
	}
	list := any("x")
	for range 100_000 {
		list = []any{list}
	}
	for _, c := range []struct {
		name  string
		input map[string]any
		want  bailey.Effect
		why   string
	}{
		{"the input that a forbid looks at is left out, and what it forbids with it", map[string]any{"repo": "."}, bailey.Allow, "push"},
		{"a mandatory input is left out", map[string]any{"ref": "main"}, bailey.Deny, "input repo is missing"},
		{"a mandatory input inside another is left out", map[string]any{"repo": ".", "meta": map[string]any{}}, bailey.Deny, "input meta.owner is missing"},
		{"null for what is left out", map[string]any{"repo": ".", "ref": nil}, bailey.Deny, "input ref does not fit"},
		{"null inside", map[string]any{"repo": ".", "meta": map[string]any{"owner": nil}}, bailey.Deny, "input meta.owner does not fit"},
		{"null for a mandatory input", map[string]any{"repo": nil}, bailey.Deny, "input repo does not fit"},
		{"no input at all", nil, bailey.Deny, "input repo is missing"},
		{"a number that overflows in the rule", map[string]any{"repo": ".", "depth": n("9223372036854775807")}, bailey.Deny, "rule deep cannot be evaluated"},
		{"a number that wraps below zero", map[string]any{"repo": ".", "depth": n("18446744073709551615")}, bailey.Deny, "input depth does not fit"},
		{"a number that wraps to a small one", map[string]any{"repo": ".", "depth": n("18446744073709551617")}, bailey.Deny, "input depth does not fit"},
		{"a fraction below the bound", map[string]any{"repo": ".", "depth": n("50.9")}, bailey.Deny, "input depth does not fit"},
		{"an exponent", map[string]any{"repo": ".", "depth": n("1e2")}, bailey.Deny, "input depth does not fit"},
		{"a fraction too small to tell", map[string]any{"repo": ".", "depth": n("60.00000000000000000001")}, bailey.Deny, "input depth does not fit"},
		{"minus nothing", map[string]any{"repo": ".", "depth": n("-0")}, bailey.Deny, "input depth does not fit"},
		{"a number as text", map[string]any{"repo": ".", "depth": "60"}, bailey.Deny, "input depth does not fit"},
		{"a million digits", map[string]any{"repo": ".", "depth": n(strings.Repeat("9", 1<<20))}, bailey.Deny, "input depth does not fit"},
		{"a list for text", map[string]any{"repo": ".", "ref": []any{"main"}}, bailey.Deny, "input ref does not fit"},
		{"the name in another case", map[string]any{"repo": ".", "Ref": "main"}, bailey.Ask, "rules cannot read"},
		{"the name in letters that look alike", map[string]any{"repo": ".", "rеf": "main"}, bailey.Ask, "rules cannot read"},
		{"the name with a space", map[string]any{"repo": ".", "ref ": "main"}, bailey.Ask, "rules cannot read"},
		{"a dotted name for one inside", map[string]any{"repo": ".", "meta.owner": "ada"}, bailey.Ask, "rules cannot read"},
		{"a list of opaque names of one's own", map[string]any{"repo": ".", "_opaque": []any{}, "score": n("1.5")}, bailey.Ask, "rules cannot read"},
		{"grants of one's own", map[string]any{"repo": ".", "ref": "main", "approvals": []any{"main-needs-human"}}, bailey.Ask, "main is released; the call has inputs"},
		{"deep nesting where text is meant", map[string]any{"repo": ".", "ref": deep}, bailey.Deny, "input ref does not fit"},
		{"deep nesting where anything is", map[string]any{"repo": ".", "mixed": list}, bailey.Ask, "rules cannot read"},
		{"deep nesting inside a record", map[string]any{"repo": ".", "meta": map[string]any{"owner": "o", "inner": deep}}, bailey.Ask, "rules cannot read"},
	} {
		d := e.Decide(request("git.push", c.input))
		if d.Effect != c.want || !strings.Contains(d.Reason, c.why) {
			t.Errorf("%s: %v %q, want %v %q", c.name, d.Effect, d.Reason, c.want, c.why)
		}
	}
	// If the author forgets that an input is optional, a call without it would skip the rule. Such a rule must not
	// load.
	if _, err := tryLoad(permitPush + `@id("f") @reason("x") forbid (principal, action == Action::"git.push", resource) when { context.input.ref == "main" };`); err == nil {
		t.Error("a forbid that leaving out an input would skip is taken")
	}
}

// TestAttackNames checks that a rule for one name does not apply to a similar name.
func TestAttackNames(t *testing.T) {
	e := load(t, `@id("p") permit (principal == Agent::"claude", action == Action::"git.push", resource == Target::"host:web1")
when { principal.roles.contains("sre") && principal.person == "ada" && principal.organisation == "acme" };`)
	good := push()
	good.Target = bailey.Target{Kind: "host", Name: "web1"}
	good.Principal.Roles = []string{"sre"}
	want(t, e.Decide(good), bailey.Allow, "", "p")
	for name, spoil := range map[string]func(*bailey.Request){
		"agent, case":           func(r *bailey.Request) { r.Principal.Agent = "Claude" },
		"agent, homoglyph":      func(r *bailey.Request) { r.Principal.Agent = "сlaude" },
		"agent, space":          func(r *bailey.Request) { r.Principal.Agent = "claude " },
		"agent, invisible":      func(r *bailey.Request) { r.Principal.Agent = "claude\u200b" },
		"agent, quoted":         func(r *bailey.Request) { r.Principal.Agent = `claude"` },
		"agent, whole entity":   func(r *bailey.Request) { r.Principal.Agent = `Agent::"claude"` },
		"agent, NUL":            func(r *bailey.Request) { r.Principal.Agent = "claude\x00" },
		"agent, not UTF-8":      func(r *bailey.Request) { r.Principal.Agent = "claude\xff" },
		"role, case":            func(r *bailey.Request) { r.Principal.Roles = []string{"SRE"} },
		"role, homoglyph":       func(r *bailey.Request) { r.Principal.Roles = []string{"srе"} },
		"role, list in one":     func(r *bailey.Request) { r.Principal.Roles = []string{"dev,sre"} },
		"person, case":          func(r *bailey.Request) { r.Principal.Person = "Ada" },
		"person, none":          func(r *bailey.Request) { r.Principal.Person = "" },
		"organisation, longer":  func(r *bailey.Request) { r.Principal.Organisation = "acme.evil" },
		"target, case":          func(r *bailey.Request) { r.Target.Name = "WEB1" },
		"target, name as kind":  func(r *bailey.Request) { r.Target = bailey.Target{Kind: "host:web1"} },
		"target, longer":        func(r *bailey.Request) { r.Target.Name = "web1:22" },
		"target, without name":  func(r *bailey.Request) { r.Target.Name = "" },
		"target, this machine":  func(r *bailey.Request) { r.Target = bailey.Target{Kind: "local"} },
		"target, another kind":  func(r *bailey.Request) { r.Target.Kind = "sandbox" },
		"action, case":          func(r *bailey.Request) { r.Capability = "git.Push" },
		"action, homoglyph":     func(r *bailey.Request) { r.Capability = "gіt.push" },
		"action, its tool name": func(r *bailey.Request) { r.Capability = "git_push" },
		"action, a group":       func(r *bailey.Request) { r.Capability = "pack:git" },
		"action, longer":        func(r *bailey.Request) { r.Capability = "git.push.force" },
	} {
		r := good
		spoil(&r)
		if d := e.Decide(r); d.Effect != bailey.Deny || d.Reason == "" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestAttackGrants checks that a grant lifts only the rule with exactly the same id. Text that a client sends as input,
// person or session must not count as a grant.
func TestAttackGrants(t *testing.T) {
	e := load(t, permitPush+askMain, `@id("prod") @reason("production") @approval("count=1") forbid (principal, action == Action::"git.push", resource)
when { context.environment == "production" } unless { context.approvals.contains("prod") };`)
	r := push("ref", "main")
	r.Environ = "production"
	for name, grants := range map[string][]bailey.RuleID{
		"none":          nil,
		"case":          {"Main-needs-human", "Prod"},
		"homoglyph":     {"main-needs-humаn", "рrod"},
		"space":         {"main-needs-human ", " prod"},
		"list in one":   {"main-needs-human,prod"},
		"the permit":    {"push"},
		"a pattern":     {"*", "main-*"},
		"empty":         {""},
		"an annotation": {`@id("prod")`},
	} {
		r.Approvals = grants
		if d := e.Decide(r); d.Effect != bailey.Ask || len(d.Asks) != 2 {
			t.Errorf("%s: %v, %d ask", name, d.Effect, len(d.Asks))
		}
	}
	r.Approvals = []bailey.RuleID{"prod"}
	want(t, e.Decide(r), bailey.Ask, "main is released", "main-needs-human")
	r.Approvals = nil
	r.Principal.Roles, r.Session.ID, r.Principal.Person = []string{"prod", "main-needs-human"}, "prod", "prod"
	want(t, e.Decide(r), bailey.Ask, "production", "main-needs-human", "prod")
}

// TestAttackClient checks that a request has no field for the name that a client gives itself, so that no rule can read
// it.
func TestAttackClient(t *testing.T) {
	const known = "Capability Manifest Principal Session Target Labels Commands Input Paths Dir Cage Absent Changed Profile Environ Writes Restores Egress Waivers Time Approvals"
	var fields []string
	for f := range reflect.TypeFor[bailey.Request]().Fields() {
		fields = append(fields, f.Name)
	}
	if got := strings.Join(fields, " "); got != known {
		t.Errorf("a request holds %s: whatever is new there must not be the client's own word", got)
	}
}

// TestAttackCapabilities checks that a manifest cannot take the name of another action or of a group, and cannot join a
// class that is not its own.
func TestAttackCapabilities(t *testing.T) {
	status, evil := testActions()[0], testActions()[4]
	for name, spoil := range map[string]func(*Action){
		"the same id":             func(a *Action) { a.ID = status.ID },
		"a group's name":          func(a *Action) { a.ID = "pack:git" },
		"a class's name":          func(a *Action) { a.ID = "risk:low" },
		"the built-in group":      func(a *Action) { a.ID = "builtin" },
		"homoglyph":               func(a *Action) { a.ID = "gіt.status" },
		"quotes in the id":        func(a *Action) { a.ID = `git.x", Action::"git.push` },
		"a class as its pack":     func(a *Action) { a.Pack = "git, risk:low" },
		"a colon in its pack":     func(a *Action) { a.Pack = "git:status" },
		"no side-effect class":    func(a *Action) { a.SideEffect = "" },
		"one that does not exist": func(a *Action) { a.Reversibility = "undoable" },
	} {
		a := evil
		spoil(&a)
		if _, err := Load(Config{Sources: []Source{Starter()}, Actions: []Action{status, a}}); err == nil {
			t.Errorf("%s: loads", name)
		}
	}
	e, err := Load(Config{Actions: []Action{status, evil}, Sources: []Source{{"a.cedar", []byte(
		`@id("p") permit (principal, action == Action::"git.status", resource);
@id("b") permit (principal, action in Action::"builtin", resource);
@id("g") permit (principal, action in Action::"pack:git", resource);`)}}})
	if err != nil {
		t.Fatal(err)
	}
	want(t, e.Decide(request(evil.ID, nil)), bailey.Deny, "no rule allows other.look")
	// If a capability is renamed, a rule that names it must not load, so that it cannot silently stop applying.
	renamed := status
	renamed.ID = "git.state"
	_, err = Load(Config{Actions: []Action{renamed}, Sources: []Source{{"a.cedar", []byte(`@id("f") @reason("x") forbid (principal, action == Action::"git.status", resource);`)}}})
	if err == nil || !strings.Contains(err.Error(), "a.cedar:1: rule f: unrecognized action `Action::\"git.status\"`") {
		t.Errorf("a forbid of a capability that was renamed: %v", err)
	}
}

// TestAttackSwap checks that an engine does not change if the caller changes the texts, actions or requests that it
// passed. A decision must name the policy that made it.
func TestAttackSwap(t *testing.T) {
	text := []byte(permitPush + askMain)
	c := Config{Sources: []Source{{"a.cedar", text}}, Actions: testActions()}
	e, err := Load(c)
	if err != nil {
		t.Fatal(err)
	}
	before := e.Decide(push("ref", "main"))
	for i := range text {
		text[i] = ' '
	}
	c.Actions[1].Reversibility, c.Actions[1].ID = "readOnly", "git.pull"
	before.Rules[0].ID, before.Asks[0].Role = "push", ""
	after := e.Decide(push("ref", "main"))
	want(t, after, bailey.Ask, "main is released", "main-needs-human")
	if after.Asks[0].Role != "sre" || after.Policy != before.Policy || after.Policy != e.Digest() {
		t.Errorf("%+v", after)
	}
	if text := e.Rule("main-needs-human").Text; !strings.Contains(text, `"main"`) {
		t.Errorf("%q", text)
	}
	other := load(t, permitPush+"\n"+askMain)
	if d := other.Decide(push("ref", "main")); d.Policy == after.Policy {
		t.Error("two policies have one digest")
	}
}

// TestAttackClock checks that hours and weekdays in rules are those of the time zone of the request's time, which must
// be the gateway's zone. If the clock is set back, only the hour can still be right.
func TestAttackClock(t *testing.T) {
	e := load(t, permitPush+`@id("night") @reason("it is night") forbid (principal, action == Action::"git.push", resource)
when { context.time.hour >= 22 || context.time.hour < 6 };
@id("sunday") @reason("it is Sunday") forbid (principal, action == Action::"git.push", resource) when { context.time.weekday == 0 };
@id("ended") @reason("it is over") forbid (principal, action == Action::"git.push", resource) when { context.time.epoch >= 1800000000 };`)
	tokyo, lima := time.FixedZone("Tokyo", 9*3600), time.FixedZone("Lima", -5*3600)
	for _, c := range []struct {
		at    time.Time
		rules string
	}{
		{time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC), ""},
		{time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC).In(tokyo), "night"}, // the same moment: 23:00
		{time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC).In(lima), ""},       // and 09:00
		{time.Date(2026, 11, 20, 23, 0, 0, 0, lima), "night"},
		{time.Date(2026, 11, 20, 23, 0, 0, 0, lima).UTC(), "night"}, // 04:00 of the next day
		{time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC), ""},
		{time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC).In(tokyo), "night sunday"}, // 05:00 on Sunday
		{time.Unix(1_800_000_000, 0).In(lima), "night ended"},                      // 03:00
		{time.Unix(1_799_999_999, 0).In(tokyo), ""},                                // 16:59, a second before
		{time.Unix(-1, 0).UTC(), "night"},                                          // a clock that was reset
	} {
		r := push()
		r.Time = c.at
		d := e.Decide(r)
		var ids []string
		for _, rule := range d.Rules {
			ids = append(ids, string(rule.ID))
		}
		if got := strings.Join(ids, " "); c.rules == "" && d.Effect != bailey.Allow || c.rules != "" && (got != c.rules || d.Effect != bailey.Deny) {
			t.Errorf("%v: %v by %s, want %s", c.at, d.Effect, got, c.rules)
		}
	}
	r := push()
	r.Time = time.Time{}
	want(t, e.Decide(r), bailey.Deny, "has no time")
	if now := time.Now(); fmt.Sprint(now.Location()) != fmt.Sprint(time.Local) {
		t.Errorf("the clock is in %v, so that hours are not those of this place", now.Location())
	}
}
