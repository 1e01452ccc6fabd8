package policy

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"

	"bailey"
	"bailey/internal/ktest"
)

// reference decides as the package comment specifies, without slices and without a second pass.
func reference(e *Engine, r bailey.Request) bailey.Effect {
	every := slices.Clone(r.Approvals)
	for id, ru := range e.rules {
		if ru.Asks {
			every = append(every, id)
		}
	}
	switch r2 := r; {
	case plain(e, r):
		return bailey.Allow
	case func() bool { r2.Approvals = every; return plain(e, r2) }():
		return bailey.Ask
	}
	return bailey.Deny
}

// newWorld returns a request with all attributes.
func newWorld(a *action, r bailey.Request) (*CedarRequest, error) {
	return newView(a, &r, contextAttributes())
}

func plain(e *Engine, r bailey.Request) bool {
	a := e.slices[r.Capability].act
	w, err := newWorld(a, r)
	if err != nil {
		return false
	}
	set := cedar.NewPolicySet()
	for id, ru := range e.rules {
		set.Add(cedar.PolicyID(id), ru.Policy)
	}
	ok, diag := cedar.Authorize(set, w, w.Request)
	named := !a.isIrreversible()
	for _, d := range diag.Reasons {
		named = named || e.rules[bailey.RuleID(d.PolicyID)].namesAction(a.uid)
	}
	return ok == cedar.Allow && len(diag.Errors) == 0 && named
}

type dice struct{ *rand.Rand }

func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

func (d dice) rule(i int) string {
	id := fmt.Sprintf("r%d", i)
	scope := pick(d, ``, ` == Action::"git.push"`, ` == Action::"git.status"`, ` == Action::"disk.wipe"`, ` in Action::"pack:git"`,
		` in Action::"sideEffect:readOnly"`, ` in Action::"risk:low"`, ` in Action::"builtin"`, ` in Action::"disk.wipe"`,
		` in [Action::"git.push", Action::"pack:disk"]`, ` in [Action::"risk:medium", Action::"other.look"]`)
	who := pick(d, `principal`, `principal == Agent::"claude"`, `principal == Agent::"codex"`)
	what := pick(d, `resource`, `resource == Target::"local"`, `resource == Target::"host:web1"`)
	cond := pick(d, `context.cage == "full"`, `context.cage == "none"`, `context.time.hour > 12`, `principal.roles.contains("sre")`,
		`context.writes`, `context.unattended`, `context.time.epoch * context.time.epoch * context.time.epoch > 0`,
		`action in Action::"pack:git"`, `context.dir like "/w*"`)
	clause := pick(d, ``, fmt.Sprintf(` when { %s }`, cond), fmt.Sprintf(` unless { %s }`, cond))
	head := fmt.Sprintf("@id(%q) @reason(%q) ", id, id)
	switch d.IntN(6) {
	case 0, 1, 2:
		return fmt.Sprintf("%s permit (%s, action%s, %s)%s;\n", head, who, scope, what, clause)
	case 3:
		return fmt.Sprintf("%s forbid (%s, action%s, %s)%s;\n", head, who, scope, what, pick(d, clause, ` when { context.cage == "none" }`))
	}
	grant := fmt.Sprintf("context.approvals.contains(%q)", id)
	grant = pick(d, grant, grant, grant+" && "+cond, cond+" && "+grant)
	return fmt.Sprintf("%s @approval(\"role=sre\") forbid (%s, action%s, %s)%s unless { %s };\n", head, who, scope, what, clause, grant)
}

func (d dice) request() bailey.Request {
	r := request(pick(d, testActions()...).ID, nil)
	if strings.HasPrefix(string(r.Capability), "git.") {
		r.Input = map[string]any{"repo": "."}
	}
	if d.IntN(4) == 0 {
		r.Input = map[string]any{"repo": ".", "odd": 1.5}
	}
	r.Principal.Agent = pick(d, "claude", "codex")
	r.Principal.Roles = pick(d, nil, []string{"sre"})
	r.Target = pick(d, bailey.Target{Kind: "local"}, bailey.Target{Kind: "host", Name: "web1"})
	r.Cage = pick(d, "full", "none")
	r.Session.Unattended = d.IntN(4) == 0
	r.Time = pick(d, r.Time, r.Time.Add(12*time.Hour), time.Unix(9, 0).UTC())
	for i := range 12 {
		if d.IntN(6) == 0 {
			r.Approvals = append(r.Approvals, bailey.RuleID(fmt.Sprintf("r%d", i)))
		}
	}
	return r
}

func byID(a, b bailey.Rule) int { return strings.Compare(string(a.ID), string(b.ID)) }

// TestSlicedIsFlat checks that a decision with slices equals one over all rules, and that both equal the reference.
func TestSlicedIsFlat(t *testing.T) {
	ktest.Long(t)
	const seed, policies, requests = 7, 400, 25
	d := dice{rand.New(rand.NewPCG(seed, 1))}
	count := map[bailey.Effect]int{}
	for range policies {
		var b strings.Builder
		for i := range 1 + d.IntN(12) {
			text := d.rule(i)
			// some contradict themselves or others and are refused
			if _, err := tryLoad(b.String() + text); err == nil {
				b.WriteString(text)
			}
		}
		e := load(t, b.String())
		flat := e.Unsliced().Decide
		for range requests {
			r := d.request()
			got, whole := e.Decide(r), flat(r)
			count[got.Effect]++
			if ref := reference(e, r); got.Effect != ref {
				t.Fatalf("%+v\n%sgot %v %q, meant %v", r, b.String(), got.Effect, got.Reason, ref)
			}
			slices.SortFunc(got.Rules, byID)
			slices.SortFunc(whole.Rules, byID)
			if got.Effect != whole.Effect || !reflect.DeepEqual(got.Rules, whole.Rules) {
				t.Fatalf("%+v\n%ssliced %+v\nflat %+v", r, b.String(), got, whole)
			}
			if x := e.Examine(r); x.Effect != got.Effect {
				t.Fatalf("examined as %v", x.Effect)
			}
		}
	}
	for _, effect := range []bailey.Effect{bailey.Allow, bailey.Ask, bailey.Deny} {
		if count[effect] < policies*requests/50 {
			t.Errorf("only %d of %d are %v: the test says little", count[effect], policies*requests, effect)
		}
	}
}

// TestMonotone checks that an additional grant never makes a decision stricter.
func TestMonotone(t *testing.T) {
	ktest.Long(t)
	d := dice{rand.New(rand.NewPCG(11, 1))}
	for range 200 {
		var b strings.Builder
		for i := range 8 {
			// an evaluation error denies, independent of grants
			if text := d.rule(i); !strings.Contains(text, "epoch") {
				if _, err := tryLoad(b.String() + text); err == nil {
					b.WriteString(text)
				}
			}
		}
		e := load(t, b.String())
		for range 20 {
			r := d.request()
			before := e.Decide(r).Effect
			r.Approvals = append(slices.Clone(r.Approvals), bailey.RuleID(fmt.Sprintf("r%d", d.IntN(8))), opaqueRule)
			if after := e.Decide(r).Effect; after < before {
				t.Fatalf("%v became %v by a grant\n%+v\n%s", before, after, r, b.String())
			}
		}
	}
}

// FuzzLoad checks that no text causes a panic on loading or deciding, and that text without a permit allows nothing.
func FuzzLoad(f *testing.F) {
	f.Add(string(Starter().Text))
	f.Add(permitAll + permitPush + askMain)
	f.Add(asking(`unless { context.cage == "full" && context.approvals.contains("r") }`))
	f.Add(when(`context.input has meta && context.input.meta.owner like "a*" && ip("1.2.3.4").isInRange(ip("1.0.0.0/8"))`))
	f.Add(when(`if context.writes then -context.time.hour < 3 else ["a", "b"].containsAny(context.paths)`))
	f.Add(when(`principal is Agent && {a: 1, "b": [true]}.a == 1 && decimal("1.0").lessThan(decimal("2.0"))`))
	reqs := []bailey.Request{push("ref", "main"), push("score", 1.5), request("disk.wipe", nil), request("system.echo", nil)}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := tryLoad(text)
		if err != nil {
			return
		}
		for _, r := range reqs {
			d := e.Decide(r)
			if d.Effect != bailey.Deny && !strings.Contains(text, "permit") {
				t.Fatalf("%v without a permit", d.Effect)
			}
			if x := e.Examine(r); x.Effect != d.Effect {
				t.Fatalf("%v examined as %v", d.Effect, x.Effect)
			}
		}
	})
}

// seeded returns a random source with a fixed seed.
func seeded(n uint64) dice { return dice{rand.New(rand.NewPCG(n, 1))} }

func loads(text string) bool {
	_, err := tryLoad(text)
	return err == nil
}
