package review

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/policy"
)

// told formats a difference: one line per capability and one for the rules.
func told(d Difference) string {
	ids := func(c RuleChanges) string {
		var out []string
		for sign, list := range map[string][]RuleAt{"+": c.Added, "-": c.Removed, "~": c.Rewritten} {
			for _, r := range list {
				out = append(out, fmt.Sprintf("%s%s/%s", sign, r.ID, r.Effect))
			}
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	var out []string
	for what, list := range map[string][]Shift{"gained": d.Gained, "lost": d.Lost, "changed": d.Changed} {
		for _, s := range list {
			out = append(out, fmt.Sprintf("%s %s: %s, %s: %s", what, s.Capability, s.Was, s.Now, ids(s.Rules)))
		}
	}
	slices.Sort(out)
	return strings.Join(append(out, "rules: "+ids(d.Rules)), "\n")
}

func TestCompare(t *testing.T) {
	const status = `@id("status") permit (principal, action == Action::"git.status", resource);` + "\n"
	for _, c := range []struct{ name, old, now, want string }{
		{"the same", permitPush + askMain, permitPush + askMain, "rules: "},
		{"moved, spaced and commented", permitPush + askMain, "// x\n" + askMain + strings.ReplaceAll(permitPush, ", ", ",\n // y\n"), "rules: "},
		{"annotations in another order", askMain + permitPush, strings.Replace(askMain, `@id("main-needs-human") @approval("role=sre,count=2,ttl=5m")`, `@approval("role=sre,count=2,ttl=5m") @id("main-needs-human")`, 1) + permitPush, "rules: "},
		{"a permit comes", status, status + permitPush, "gained git.push: denied, allowed: +push/permit\nrules: +push/permit"},
		{"a permit goes", status + permitPush, status, "lost git.push: allowed, denied: -push/permit\nrules: -push/permit"},
		{"a question comes", permitPush, permitPush + askMain, "changed git.push: allowed, allowed or asked: +main-needs-human/ask\nrules: +main-needs-human/ask"},
		{"another condition", permitPush + askMain, permitPush + strings.Replace(askMain, `"main"`, `"prod"`, 1), "changed git.push: allowed or asked, allowed or asked: ~main-needs-human/ask\nrules: ~main-needs-human/ask"},
		{"another count", permitPush + askMain, permitPush + strings.Replace(askMain, "count=2", "count=3", 1), "changed git.push: allowed or asked, allowed or asked: ~main-needs-human/ask\nrules: ~main-needs-human/ask"},
		{"a blanket forbid of a pack", permitAll, permitAll + blanketForbid(`in Action::"pack:git"`),
			"lost git.push: allowed, denied: +never/forbid\nlost git.status: allowed, denied: +never/forbid\nrules: +never/forbid"},
		{"a rule for all narrows", status + `@id("x") permit (principal, action, resource) when { context.writes };`, status + `@id("x") permit (principal, action == Action::"git.status", resource) when { context.writes };`,
			"changed git.status: allowed, allowed: ~x/permit\nlost agent.wrap: allowed, denied: -x/permit\nlost git.push: allowed, denied: -x/permit\nlost other.look: allowed, denied: -x/permit\nlost system.echo: allowed, denied: -x/permit\nrules: ~x/permit"},
		{"what was denied stays so", "", askMain, "rules: +main-needs-human/ask"},
		{"what cannot be undone", permitAll, permitAll + `@id("w") permit (principal, action == Action::"disk.wipe", resource);`, "gained disk.wipe: denied, allowed: +w/permit\nrules: +w/permit"},
	} {
		d := Compare(load(t, c.old), load(t, c.now))
		if got := told(d); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
		if d.None() != (c.want == "rules: ") {
			t.Errorf("%s: none is %v", c.name, d.None())
		}
	}
}

// TestCompareCapabilities checks that a difference is reported if a capability appears, disappears or changes its
// class.
func TestCompareCapabilities(t *testing.T) {
	engine := func(text string, spoil func([]policy.Action) []policy.Action) *policy.Engine {
		e, err := policy.Load(policy.Config{Sources: []policy.Source{{Name: "a.cedar", Text: []byte(text)}}, Actions: spoil(testActions())})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	same := func(a []policy.Action) []policy.Action { return a }
	looks := `@id("look") permit (principal, action in Action::"sideEffect:readOnly", resource);`
	less := engine(looks, func(a []policy.Action) []policy.Action { return a[1:] })
	if got, want := told(Compare(less, engine(looks, same))), "gained git.status: absent, allowed: +look/permit\nrules: "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := told(Compare(engine(looks, same), less)), "lost git.status: allowed, absent: -look/permit\nrules: "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	writes := engine(looks, func(a []policy.Action) []policy.Action { a[0].SideEffect = "mutating"; return a })
	if got, want := told(Compare(engine(looks, same), writes)), "lost git.status: allowed, denied: -look/permit\nrules: "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// A capability with waivers runs only if a permit reads context.waivers, so the difference must name that permit.
	waives := func(a []policy.Action) []policy.Action { a[0].Waivers = []string{"fs.exec"}; return a }
	if got, want := told(Compare(engine(looks, same), engine(looks, waives))), "lost git.status: allowed, denied: \nrules: "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	lets := looks + `@id("exec") permit (principal, action == Action::"git.status", resource) when { ["fs.exec"].containsAll(context.waivers) };`
	if got, want := told(Compare(engine(looks, waives), engine(lets, waives))), "gained git.status: denied, allowed: +exec/permit\nrules: +exec/permit"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestCompareSays checks the text for a terminal and the JSON form.
func TestCompareSays(t *testing.T) {
	old, now := load(t, permitPush+askMain), load(t, "// x\n"+permitPush+strings.Replace(askMain, `"main"`, `"prod"`, 1), `@id("look") permit (principal, action in Action::"sideEffect:readOnly", resource);`)
	got := Compare(old, now).String()
	want := `may run now (2)
  git.status, other.look
    was denied, now allowed
    + permit look at b.cedar:1

runs by other rules (1)
  git.push
    was allowed or asked, now allowed or asked
    ~ ask main-needs-human at a.cedar:3, before at a.cedar:2

rules
  + permit look at b.cedar:1
  ~ ask main-needs-human at a.cedar:3, before at a.cedar:2`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := Compare(old, old).String(); got != "nothing changes: both policies mean the same" {
		t.Error(got)
	}
	b, err := json.Marshal(Compare(old, load(t, askMain)))
	if want := `{"gained":[],"lost":[{"capability":"git.push","was":"allowed or asked","now":"denied","rules":{"added":[],"removed":[{"id":"push","effect":"permit","source":"a.cedar:1"}],"rewritten":[]}}],"changed":[],"rules":{"added":[],"removed":[{"id":"push","effect":"permit","source":"a.cedar:1"}],"rewritten":[]}}`; err != nil || string(b) != want {
		t.Errorf("%s\nwant\n%s", b, want)
	}
	many := Compare(load(t), manyActions(t, 200)).String()
	if !strings.Contains(many, "and 140 more") {
		t.Errorf("two hundred capabilities are spelled out: %s", many)
	}
	for l := range strings.Lines(many) {
		if len(l) > 120 {
			t.Errorf("%d columns: %s", len(l), l)
		}
	}
}

func manyActions(t *testing.T, n int) *policy.Engine {
	t.Helper()
	c := policy.Config{Sources: []policy.Source{{Name: "a.cedar", Text: []byte(permitAll)}}}
	for i := range n {
		a := testActions()[4]
		a.ID = bailey.CapabilityID(fmt.Sprintf("other.action-%d", i))
		c.Actions = append(c.Actions, a)
	}
	e, err := policy.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestCompareIsTrue checks with random pairs of policies that if their decisions on a request differ, the comparison
// names the capability.
func TestCompareIsTrue(t *testing.T) {
	ktest.Long(t)
	d := seeded(5)
	differs := 0
	for range 150 {
		var texts [2]strings.Builder
		for i := range 6 {
			shared := d.rule(i)
			for side := range texts {
				text := shared
				if d.IntN(4) == 0 {
					text = d.rule(i)
				}
				if loads(texts[side].String() + text) {
					texts[side].WriteString(text)
				}
			}
		}
		old, now := load(t, texts[0].String()), load(t, texts[1].String())
		diff := Compare(old, now)
		named := map[bailey.CapabilityID]bool{}
		for _, list := range [][]Shift{diff.Gained, diff.Lost, diff.Changed} {
			for _, s := range list {
				named[s.Capability] = true
			}
		}
		for range 30 {
			r := d.request()
			was, is := old.Decide(r), now.Decide(r)
			if was.Effect == is.Effect {
				continue
			}
			differs++
			if !named[r.Capability] {
				t.Fatalf("%s: %v, then %v, and nothing is said\n%s\n%s", r.Capability, was.Effect, is.Effect, texts[0].String(), texts[1].String())
			}
		}
	}
	if differs < 100 {
		t.Errorf("only %d decisions differ: the test says little", differs)
	}
}
