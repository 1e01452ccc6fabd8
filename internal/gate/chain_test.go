package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/pack"
)

func workflow(name string) bailey.Call {
	in := call()
	in.Capability, in.Input = bailey.CapabilityID("t."+name), map[string]any{"word": "hello"}
	return in
}

// asksSteps sets a policy that asks about every echo. The current result of digest is the digest of the rule.
func asksSteps(w *world, digest func() string) (questions *[]bailey.Question) {
	w.decide = func(_ int, r bailey.Request) bailey.Decision {
		rule := bailey.Rule{ID: "talk", Digest: digest(), Reason: "talk is not cheap"}
		if r.Capability == "t.echo" && !slices.Contains(r.Approvals, rule.ID) {
			return bailey.Decision{Effect: bailey.Ask, Asks: []bailey.Rule{rule}, Rules: []bailey.Rule{rule}, Reason: rule.Reason, Policy: "p"}
		}
		return bailey.Decision{Effect: bailey.Allow, Rules: []bailey.Rule{{ID: "r1"}}, Policy: "p"}
	}
	questions = &[]bailey.Question{}
	given := w.answer
	w.answer = func(q bailey.Question) bailey.Answer { *questions = append(*questions, q); return given(q) }
	return questions
}

// TestWorkflow checks that each step is a call with its own receipt below the workflow's, and that the caller gets the
// output of the steps unchanged.
func TestWorkflow(t *testing.T) {
	w := newWorld(t)
	w.run = func(_ bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
		io.WriteString(s.Stdout, "said SECRET\n")
		return bailey.Exit{}, nil
	}
	res := w.gate().Do(t.Context(), workflow("both"))
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	if len(w.intents) != 3 || len(w.outcomes) != 3 {
		t.Fatalf("%d intents, %d outcomes: %v", len(w.intents), len(w.outcomes), w.did)
	}
	whole, done := w.intents[0], w.outcomes[2]
	if whole.Within != "" || done.Receipt != whole.Receipt || len(done.Steps) != 2 || done.Cage.Enforced || done.Cage.Kind != "workflow" {
		t.Errorf("the workflow's own receipt: %+v, %+v", whole, done)
	}
	for i, in := range w.intents[1:] {
		if in.Within != whole.Receipt || in.Step != []string{"one", "two"}[i] || done.Steps[i].Receipt != in.Receipt || done.Steps[i].Status != bailey.OK || in.Session != whole.Session {
			t.Errorf("step %d: %+v, %+v", i, in, done.Steps[i])
		}
	}
	if got := string(res.Stdout); strings.Count(got, "said [R]\n") != 2 || !strings.HasPrefix(got, "step one: t.echo: ok, receipt "+string(w.intents[1].Receipt)+"\n") {
		t.Errorf("stdout %q", got)
	}
	if want := []string{"workflow", "one: t.echo: echo -- hello", "two: t.echo: echo -- and hello"}; !slices.Equal(done.Argv, want) {
		t.Errorf("argv %q", done.Argv)
	}
}

// TestWorkflowIsAskedOnce checks that the question about the workflow includes the steps that are known beforehand, and
// that a step does not ask again if it is as granted.
func TestWorkflowIsAskedOnce(t *testing.T) {
	w := newWorld(t)
	questions := asksSteps(w, func() string { return "d" })
	res := w.gate().Do(t.Context(), workflow("both"))
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	if len(*questions) != 1 || len((*questions)[0].Rules) != 1 || (*questions)[0].Call != "t.both" || len((*questions)[0].Argv) != 3 {
		t.Fatalf("%d questions: %+v", len(*questions), *questions)
	}
	for _, o := range w.outcomes {
		if o.Approval != (*questions)[0].ID || o.Status != bailey.OK {
			t.Errorf("%+v", o)
		}
	}
}

// TestWorkflowAsksAgain checks that a step asks again if it takes the output of an earlier step, if its rule was
// rewritten, if its path leads elsewhere, or if a hook changed it. If the answer is no, the workflow ends.
func TestWorkflowAsksAgain(t *testing.T) {
	w := newWorld(t)
	questions := asksSteps(w, func() string { return "d" })
	if res := w.gate().Do(t.Context(), workflow("relay")); res.Err != nil {
		t.Fatal(res.Err)
	}
	if len(*questions) != 2 || (*questions)[0].Call != "t.relay" || (*questions)[1].Call != "t.echo" || (*questions)[1].Argv[2].Text != "out" {
		t.Errorf("a step that was not known: %d questions: %+v", len(*questions), *questions)
	}

	w = newWorld(t)
	n := 0
	questions = asksSteps(w, func() string {
		if len(w.intents) > 1 { // while the steps run
			n++
			return "another"
		}
		return "d"
	})
	w.gate().Do(t.Context(), workflow("both"))
	if len(*questions) != 3 || n == 0 {
		t.Errorf("a rule that was rewritten: %d questions", len(*questions))
	}

	w = newWorld(t)
	questions = asksSteps(w, func() string { return "d" })
	given := w.answer
	w.answer = func(q bailey.Question) bailey.Answer { w.leads = "/elsewhere"; return given(q) }
	in := workflow("both")
	in.Input["dir"] = "/there"
	if res := w.gate().Do(t.Context(), in); res.Err != nil || len(*questions) != 2 || (*questions)[1].Call != "t.echo" {
		t.Errorf("a path that leads elsewhere by now: %v, %d questions", res.Err, len(*questions))
	}

	w = newWorld(t)
	questions = asksSteps(w, func() string { return "d" })
	w.answer = func(q bailey.Question) bailey.Answer {
		*questions = append(*questions, q)
		if q.Call == "t.both" {
			w.verdict.Input = map[string]any{"word": "something else"}
			return bailey.Answer{Granted: []bailey.RuleID{"talk"}}
		}
		return bailey.Answer{Reason: "no"}
	}
	if res := w.gate().Do(t.Context(), workflow("both")); res.Err == nil || len(*questions) != 2 || w.happened("run") {
		t.Errorf("a step that a hook changed ran on the workflow's answer: %v, %v", res.Err, w.did)
	}
}

// TestWorkflowShowsAndLends checks that a step with a preview asks for itself.
func TestWorkflowShowsAndLends(t *testing.T) {
	w := newWorld(t)
	var asked []bailey.CapabilityID
	w.decide = func(_ int, r bailey.Request) bailey.Decision {
		if r.Capability == "t.put" && len(r.Approvals) == 0 {
			return bailey.Decision{Effect: bailey.Ask, Asks: []bailey.Rule{{ID: "p", Digest: "d"}}, Policy: "p"}
		}
		return bailey.Decision{Effect: bailey.Allow, Policy: "p"}
	}
	given := w.answer
	w.answer = func(q bailey.Question) bailey.Answer { asked = append(asked, q.Call); return given(q) }
	if res := w.gate().Do(t.Context(), workflow("putting")); res.Err == nil || !errors.Is(res.Err, bailey.Invalid) {
		t.Errorf("an input that is unknown: %v", res.Err)
	}
	in := workflow("putting")
	in.Input = nil
	if res := w.gate().Do(t.Context(), in); res.Err != nil {
		t.Fatal(res.Err)
	}
	if !slices.Equal(asked, []bailey.CapabilityID{"t.put"}) {
		t.Errorf("asked about %v", asked)
	}
}

// TestWorkflowRefused checks that no step runs if one of them is denied, is invalid, is itself a workflow, or has more
// side effects than the manifest says.
func TestWorkflowRefused(t *testing.T) {
	for name, c := range map[string]struct {
		call bailey.Call
		deny string
		want string
	}{
		"denied":  {workflow("both"), "t.echo", "step one: never"},
		"itself":  {workflow("both"), "t.both", "never"},
		"nested":  {workflow("nested"), "", "cannot be a step of another"},
		"milder":  {workflow("meek"), "", "the workflow declares sideEffectClass readOnly, but t.put has mutating"},
		"unfit":   {func() bailey.Call { c := workflow("both"); c.Input["word"] = "-x\x00"; return c }(), "", "word"},
		"outside": {func() bailey.Call { c := workflow("both"); c.Input["dir"] = "/refused"; return c }(), "", "no such place"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.decide = func(_ int, r bailey.Request) bailey.Decision {
				if string(r.Capability) == c.deny {
					return bailey.Decision{Reason: "never", Policy: "p"}
				}
				return bailey.Decision{Effect: bailey.Allow, Policy: "p"}
			}
			if c.call.Capability == "t.nested" || c.call.Capability == "t.meek" {
				c.call.Input = nil
			}
			if c.want == "no such place" {
				w.placeErr = errors.New(c.want)
			}
			res := w.gate().Do(t.Context(), c.call)
			if res.Err == nil || !strings.Contains(res.Err.Error(), c.want) || w.happened("run") || len(w.intents) != 1 {
				t.Errorf("%v, %d intents, %v", res.Err, len(w.intents), w.did)
			}
		})
	}
}

// TestWorkflowEnds checks that the workflow ends with the first step that fails, unless that step says that the next
// one continues.
func TestWorkflowEnds(t *testing.T) {
	for name, want := range map[string]int{"both": 1, "relay": 2} {
		w := newWorld(t)
		w.run = func(_ bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
			fmt.Fprint(s.Stderr, "no luck")
			return bailey.Exit{Code: 4}, nil
		}
		in := workflow(name)
		res := w.gate().Do(t.Context(), in)
		ran := len(w.outcomes) - 1
		if !errors.Is(res.Err, bailey.ToolFailed) || ran != want || !strings.Contains(string(res.Stdout), fmt.Sprintf("the workflow ends with step %s", []string{"", "one", "two"}[want])) {
			t.Errorf("%s: %v after %d steps: %s", name, res.Err, ran, res.Stdout)
		}
		if o := w.outcomes[ran]; o.Status != bailey.Failed || len(o.Steps) != want || o.Steps[0].Status != bailey.Failed {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestWorkflowDryRun checks that a dry run makes no call and reports what each call would be.
func TestWorkflowDryRun(t *testing.T) {
	w := newWorld(t)
	in := workflow("both")
	in.DryRun = true
	res := w.gate().Do(t.Context(), in)
	if res.Err != nil || len(w.intents) != 1 || len(res.Argv) != 3 {
		t.Errorf("%v, %d intents, %q", res.Err, len(w.intents), res.Argv)
	}
}

// TestWorkflowSaysWhatIsNotBound checks that the question says that contents are not bound, because the steps read
// their files only when they run. This must hold even if only the workflow is asked about.
func TestWorkflowSaysWhatIsNotBound(t *testing.T) {
	for name, file := range map[string]string{"fixed": "", "relay": "", "fixed file": os.Args[0]} {
		w := newWorld(t)
		w.placed = file
		name, _, _ = strings.Cut(name, " ")
		w.decide = func(_ int, r bailey.Request) bailey.Decision {
			if r.Capability == bailey.CapabilityID("t."+name) && len(r.Approvals) == 0 {
				return bailey.Decision{Effect: bailey.Ask, Asks: []bailey.Rule{{ID: "p", Digest: "d"}}, Policy: "p"}
			}
			return bailey.Decision{Effect: bailey.Allow, Policy: "p"}
		}
		var asked []bailey.Question
		given := w.answer
		w.answer = func(q bailey.Question) bailey.Answer { asked = append(asked, q); return given(q) }
		in := workflow(name)
		if name == "fixed" {
			in.Input = nil
		}
		if res := w.gate().Do(t.Context(), in); res.Err != nil || len(asked) != 1 {
			t.Fatal(name, res.Err, len(asked))
		}
		if asked[0].Contents != bailey.NotBound {
			t.Errorf("%s, file %q: contents %s", name, file, asked[0].Contents)
		}
	}
}

// TestWorkflowBindsItsSteps checks that the answer to a workflow counts only for the steps that were asked about. Steps
// of other manifests or with other programs must be asked about again.
func TestWorkflowBindsItsSteps(t *testing.T) {
	var plans []string
	for _, binary := range []string{"a", "a", "b"} {
		w := newWorld(t)
		w.binary = binary
		questions := asksSteps(w, func() string { return "d" })
		if res := w.gate().Do(t.Context(), workflow("both")); res.Err != nil || len(*questions) != 1 {
			t.Fatal(res.Err, len(*questions))
		}
		q := (*questions)[0]
		if plans = append(plans, q.Plan.Value.Reveal()); strings.Contains(q.Plan.Text, plans[0]) && plans[0] != "" {
			t.Errorf("the digest is shown: %s", q.Plan.Text) // arguments may contain a secret
		}
	}
	if plans[0] != plans[1] || plans[0] == plans[2] {
		t.Errorf("%q", plans)
	}
	w := newWorld(t)
	w.decide = func(_ int, r bailey.Request) bailey.Decision {
		return bailey.Decision{Effect: bailey.Allow, Policy: "p"}
	}
	late := map[string]bool{}
	for _, side := range []string{"t.echo", "t.put"} {
		g := w.gate()
		m, err := g.Catalog.Lookup("t.relay")
		if err != nil {
			t.Fatal(err)
		}
		g.Catalog = renamed{g.Catalog, bailey.CapabilityID(side)}
		c := g.newCallState(workflow("relay"))
		c.manifest, c.input = m, map[string]any{"word": "x"}
		if err := c.planWorkflow(t.Context()); err != nil {
			t.Fatal(err)
		}
		late[c.run.(*workflowRun).stepsDigest()] = true
		c.releaseAll()
	}
	if len(late) != 2 {
		t.Error("a step that comes late may be another")
	}
}

// renamed is a catalog with another manifest for t.echo.
type renamed struct {
	Catalog
	as bailey.CapabilityID
}

func (r renamed) Lookup(id bailey.CapabilityID) (*pack.Capability, error) {
	m, err := r.Catalog.Lookup(id)
	if err == nil && id == "t.echo" {
		other := *m
		other.Digest = string(r.as)
		m = &other
	}
	return m, err
}

// TestWorkflowIsNowhere checks that policy does not see the client's directory as that of a workflow.
func TestWorkflowIsNowhere(t *testing.T) {
	w := newWorld(t)
	given := w.decide
	w.decide = func(n int, r bailey.Request) bailey.Decision {
		if r.Capability == "t.both" && r.Dir != "" {
			t.Errorf("policy is told that a workflow runs in %s", r.Dir)
		}
		return given(n, r)
	}
	if res := w.gate().Do(t.Context(), workflow("both")); res.Err != nil {
		t.Fatal(res.Err)
	}
}

// TestWorkflowCutOff checks that if the caller leaves, the workflow counts as killed and not as failed, and no further
// step begins.
func TestWorkflowCutOff(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.runs = func(ctx context.Context, s bailey.Streams) (bailey.Exit, error) {
		cancel()
		return bailey.Exit{Code: 137}, context.Cause(ctx)
	}
	w.gate().Do(ctx, workflow("relay"))
	if n := len(w.outcomes); n != 2 || w.outcomes[0].Status != bailey.Killed || w.outcomes[1].Status != bailey.Killed {
		t.Errorf("%d outcomes: %+v", n, w.outcomes)
	}
}
