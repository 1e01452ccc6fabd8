package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/pack"
)

// TestOrder checks the first rule of the gate: the stages run in this order and no other.
func TestOrder(t *testing.T) {
	w := newWorld(t)
	res := w.gate().Do(t.Context(), call())
	if res.Err != nil || res.Status != bailey.OK || string(res.Stdout) != "out" || string(res.Stderr) != "err" {
		t.Fatalf("%+v", res)
	}
	want := []string{"intent", "restore", "plan", "decide", "pre", "decide", "take", "lend", "run -- hello", "post", "outcome"}
	if !slices.Equal(w.did, want) {
		t.Errorf("did  %v\nwant %v", w.did, want)
	}
	o := w.one()
	if o.Status != bailey.OK || o.Decision != "allow" || !*o.Executed || o.PolicyDigest != "p1" || o.Cage == nil || o.ExitCode == nil {
		t.Errorf("outcome %+v", o)
	}
	if i := w.intents[0]; i.Agent != "a" || i.Person != "p" || i.Organisation != "o" || i.Host != "h" || string(i.Input) != `{"word":"hello"}` {
		t.Errorf("intent %+v", i)
	}
	if w.closed != 1 {
		t.Errorf("the run was closed %d times", w.closed)
	}
}

// TestIntentFirst checks that nothing happens if the intent is not durable.
func TestIntentFirst(t *testing.T) {
	w := newWorld(t)
	w.openErr = errBroken
	res := w.gate().Do(t.Context(), call())
	if !errors.Is(res.Err, bailey.Unavailable) || res.Executed || !slices.Equal(w.did, []string{"intent"}) {
		t.Errorf("%+v after %v", res, w.did)
	}
}

// TestTimeoutOfACall checks that a call's own time limit reaches the tool, and that one above the manifest's is refused with
// a receipt, before anything is decided.
func TestTimeoutOfACall(t *testing.T) {
	w := newWorld(t)
	short := call()
	short.Timeout = time.Second
	if res := w.gate().Do(t.Context(), short); res.Err != nil || len(w.jobs) == 0 || w.jobs[len(w.jobs)-1].Timeout != time.Second {
		t.Errorf("%+v, %+v", res, w.jobs)
	}
	w = newWorld(t)
	long := call()
	long.Timeout = 25 * time.Hour
	res := w.gate().Do(t.Context(), long)
	if !errors.Is(res.Err, bailey.Invalid) || res.Executed || w.asked > 0 || res.Receipt == "" {
		t.Errorf("%+v after %v", res, w.did)
	}
}

// TestEveryExitHasOneReceipt checks that there is one intent and one outcome if a stage refuses, fails or panics, and
// that the tool does not run after a stage that refused.
func TestEveryExitHasOneReceipt(t *testing.T) {
	deny := func(n int) func(int, bailey.Request) bailey.Decision {
		return func(i int, _ bailey.Request) bailey.Decision {
			if i == n {
				return bailey.Decision{Reason: "because"}
			}
			return bailey.Decision{Effect: bailey.Allow}
		}
	}
	denied := &bailey.Error{Kind: bailey.Denied, Message: "no"}
	for name, c := range map[string]struct {
		set    func(*world)
		call   func(*bailey.Call)
		status bailey.Status
		runs   bool
	}{
		"unknown capability":   {call: func(c *bailey.Call) { c.Capability = "t.none" }, status: bailey.Failed},
		"restore fails":        {set: func(w *world) { w.restoreErr = errBroken }, status: bailey.Failed},
		"bad input":            {call: func(c *bailey.Call) { c.Input = map[string]any{"word": 1} }, status: bailey.Failed},
		"unknown input":        {call: func(c *bailey.Call) { c.Input["x"] = "y" }, status: bailey.Failed},
		"no input":             {call: func(c *bailey.Call) { c.Input = nil }, status: bailey.Failed},
		"path refused":         {set: func(w *world) { w.placeErr = denied }, call: func(c *bailey.Call) { c.Input["dir"] = "/x" }, status: bailey.Refused},
		"no cage":              {set: func(w *world) { w.planErr = errBroken }, status: bailey.Failed},
		"denied":               {set: func(w *world) { w.decide = deny(1) }, status: bailey.Refused},
		"zero decision":        {set: func(w *world) { w.decide = func(int, bailey.Request) (d bailey.Decision) { return } }, status: bailey.Refused},
		"hook denies":          {set: func(w *world) { w.verdict = Verdict{} }, status: bailey.Refused},
		"hook breaks":          {set: func(w *world) { w.preErr = errBroken }, status: bailey.Refused},
		"denied at last":       {set: func(w *world) { w.decide = deny(2) }, status: bailey.Refused},
		"approval breaks":      {set: func(w *world) { ask(w); w.askErr = errBroken }, status: bailey.Failed},
		"approval not given":   {set: func(w *world) { ask(w); w.answer = answer(bailey.Answer{Reason: "expired"}) }, status: bailey.Refused},
		"another rule granted": {set: func(w *world) { ask(w); w.answer = answer(bailey.Answer{Granted: []bailey.RuleID{"other"}}) }, status: bailey.Refused},
		"approval open":        {set: func(w *world) { ask(w); w.answer = answer(bailey.Answer{Pending: true}) }, status: bailey.Pending},
		"budget spent":         {set: func(w *world) { w.takeErr = denied }, status: bailey.Refused},
		"nothing lent":         {set: func(w *world) { w.lendErr = errBroken }, status: bailey.Failed},
		"run breaks":           {set: func(w *world) { w.runErr = errBroken }, status: bailey.Failed, runs: true},
		"cage not built": {set: func(w *world) {
			w.run = func(bailey.Lent, bailey.Streams) (bailey.Exit, error) {
				return bailey.Exit{Code: bailey.NeverRan}, errBroken
			}
		}, status: bailey.Failed},
		"ok":                   {status: bailey.OK, runs: true},
		"killed while asking":  {set: func(w *world) { ask(w); w.askErr = context.Canceled }, status: bailey.Killed},
		"killed while lending": {set: func(w *world) { w.lendErr = context.Canceled }, status: bailey.Killed},
		"killed by a deadline": {set: func(w *world) { w.runErr = context.DeadlineExceeded }, status: bailey.Killed, runs: true},
		"caller disconnected":  {set: func(w *world) { w.runErr = context.Canceled }, status: bailey.Killed, runs: true},
		"tool fails":           {set: func(w *world) { w.run = exits(bailey.Exit{Code: 7}) }, status: bailey.Failed, runs: true},
		"time is up":           {set: func(w *world) { w.run = exits(bailey.Exit{Code: 143, TimedOut: true}) }, status: bailey.Failed, runs: true},
		"post hook breaks":     {set: func(w *world) { w.postErr = errBroken }, status: bailey.Refused, runs: true},
		"panic in restore":     {set: func(w *world) { w.panicAt = "restore" }, status: bailey.Failed},
		"panic in plan":        {set: func(w *world) { w.panicAt = "plan" }, status: bailey.Failed},
		"panic in decide":      {set: func(w *world) { w.panicAt = "decide" }, status: bailey.Failed},
		"panic in pre":         {set: func(w *world) { w.panicAt = "pre" }, status: bailey.Failed},
		"panic in take":        {set: func(w *world) { w.panicAt = "take" }, status: bailey.Failed},
		"panic in lend":        {set: func(w *world) { w.panicAt = "lend" }, status: bailey.Failed},
		"panic in run":         {set: func(w *world) { w.panicAt = "run -- hello" }, status: bailey.Failed, runs: true},
		"panic in post":        {set: func(w *world) { w.panicAt = "post" }, status: bailey.Failed, runs: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, in := newWorld(t), call()
			if c.set != nil {
				c.set(w)
			}
			if c.call != nil {
				c.call(&in)
			}
			res := w.gate().Do(t.Context(), in)
			o := w.one()
			if o.Status != c.status || res.Status != c.status {
				t.Errorf("outcome %s, result %s, want %s (%v)", o.Status, res.Status, c.status, res.Err)
			}
			if o.Status == bailey.Refused && o.Decision == "" {
				t.Error("a denial that does not say so")
			}
			ran := w.happened("run -- hello") && name != "cage not built"
			if ran != c.runs || *o.Executed != c.runs {
				t.Errorf("ran %v, receipt says executed %v, want %v: %v", ran, *o.Executed, c.runs, w.did)
			}
			if name == "approval not given" && (!strings.Contains(res.Err.Error(), "expired") || !strings.Contains(bailey.HintOf(res.Err), "main is released")) {
				t.Errorf("the agent is not told what was asked: %v (%s)", res.Err, bailey.HintOf(res.Err))
			}
			if (res.Err == nil) != (c.status == bailey.OK) {
				t.Errorf("err %v with status %s", res.Err, c.status)
			}
			if w.happened("plan") && w.planErr == nil && w.panicAt != "plan" && w.closed != 1 {
				t.Errorf("the run was closed %d times", w.closed)
			}
		})
	}
}

// TestWhyACallEnded checks that the receipt of a cancelled call names the cause, even if the stage only returns
// "context canceled".
func TestWhyACallEnded(t *testing.T) {
	cause := fmt.Errorf("the caller went away: %w", context.Canceled)
	for name, says := range map[string]error{"bare": context.Canceled, "wrapped": fmt.Errorf("reading: %w", context.Canceled)} {
		w := newWorld(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		w.lendErr = says
		g := w.gate()
		g.Observe = func(s Step) {
			if s.Stage == "budget" {
				cancel(cause)
			}
		}
		res := g.Do(ctx, call())
		if res.Status != bailey.Killed || !errors.Is(res.Err, cause) {
			t.Errorf("%s: %s, %v", name, res.Status, res.Err)
		}
	}
}

// TestSteps checks that every stage is reported with its receipt, from the intent to the outcome.
func TestSteps(t *testing.T) {
	for denied, want := range map[bool][]string{
		false: {"intent", "lookup", "restore", "check", "decide", "pre hooks", "again", "approve", "confirm", "budget", "lend", "connect", "run", "post hooks", "promise", "outcome"},
		true:  {"intent", "lookup", "restore", "check", "decide", "outcome"},
	} {
		w := newWorld(t)
		if denied {
			w.decide = func(int, bailey.Request) (d bailey.Decision) { return }
		}
		g := w.gate()
		var stages []string
		g.Observe = func(s Step) {
			if stages = append(stages, s.Stage); s.Start.IsZero() || s.Took < 0 || len(w.intents) > 0 && s.Receipt != w.intents[0].Receipt {
				t.Errorf("%+v", s)
			}
		}
		g.Do(t.Context(), call())
		if !slices.Equal(stages, want) {
			t.Errorf("denied %v: %v, want %v", denied, stages, want)
		}
	}
}

func ask(w *world) {
	w.decide = func(_ int, r bailey.Request) bailey.Decision {
		if slices.Contains(r.Approvals, "human") {
			return bailey.Decision{Effect: bailey.Allow}
		}
		return bailey.Decision{Effect: bailey.Ask, Asks: []bailey.Rule{{ID: "human", Reason: "main is released"}}, Reason: "main is released"}
	}
}

func answer(a bailey.Answer) func(bailey.Question) bailey.Answer {
	return func(bailey.Question) bailey.Answer { return a }
}

func exits(e bailey.Exit) func(bailey.Lent, bailey.Streams) (bailey.Exit, error) {
	return func(bailey.Lent, bailey.Streams) (bailey.Exit, error) { return e, nil }
}

// TestOverIsSaid checks that if a tool is ended because it exceeded a limit, for example that of its memory, the answer
// and the receipt say so.
func TestOverIsSaid(t *testing.T) {
	const over = "the tool used more than 512 MiB of memory in all"
	for _, code := range []int{137, 0} { // 0: the tool survived the loss of a process, and its output is incomplete
		w := newWorld(t)
		w.run = exits(bailey.Exit{Code: code, Over: over})
		res := w.gate().Do(t.Context(), call())
		if bailey.KindOf(res.Err) != bailey.ToolFailed || res.Err.Error() != over+", and was killed" || bailey.HintOf(res.Err) == "" {
			t.Errorf("exit code %d: %v (%s)", code, res.Err, bailey.HintOf(res.Err))
		}
		if o := w.one(); o.Reason != over+", and was killed" || *o.ExitCode != code {
			t.Errorf("the receipt says %q, %d", o.Reason, *o.ExitCode)
		}
	}
}

// TestGoexit checks that a stage that ends its goroutine without a result does not count as a success.
func TestGoexit(t *testing.T) {
	w := newWorld(t)
	w.post = func(o Output) Output { runtime.Goexit(); return o }
	done := make(chan struct{})
	g := w.gate()
	go func() {
		defer close(done)
		g.Do(context.Background(), call())
	}()
	<-done
	if o := w.one(); o.Status != bailey.Failed || o.Reason == "" {
		t.Errorf("outcome %+v", o)
	}
}

// TestNotDurable checks that no result leaves the gate if its outcome cannot be written.
func TestNotDurable(t *testing.T) {
	w := newWorld(t)
	w.sealErr = errBroken
	res := w.gate().Do(t.Context(), call())
	if !res.NotDurable || !res.Executed || res.Stdout != nil || res.Err == nil ||
		!strings.Contains(res.Err.Error(), "executed: yes, receipt: not durable") {
		t.Errorf("%+v", res)
	}
	w = newWorld(t)
	w.sealErr, w.lendErr = errBroken, errBroken
	if res := w.gate().Do(t.Context(), call()); res.Executed || !strings.Contains(res.Err.Error(), "executed: no") {
		t.Errorf("%+v", res)
	}
}

// TestApprovedRuns checks that policy decides again with the grant, and that the call then runs.
func TestApprovedRuns(t *testing.T) {
	w := newWorld(t)
	ask(w)
	res := w.gate().Do(t.Context(), call())
	want := []string{"intent", "restore", "plan", "decide", "pre", "ask", "decide", "decide", "take", "lend", "run -- hello", "post", "outcome"}
	if res.Err != nil || !slices.Equal(w.did, want) || res.Approval == "" {
		t.Errorf("%v\ndid %v", res.Err, w.did)
	}
}

// TestRuleChangedWhileWaiting checks that the current policy decides after the answer.
func TestRuleChangedWhileWaiting(t *testing.T) {
	for name, last := range map[string]bailey.Decision{
		"a new forbid": {Reason: "night has fallen"},
		"a new ask":    {Effect: bailey.Ask, Asks: []bailey.Rule{{ID: "other"}}},
	} {
		w := newWorld(t)
		w.decide = func(n int, _ bailey.Request) bailey.Decision {
			if n == 1 {
				return bailey.Decision{Effect: bailey.Ask, Asks: []bailey.Rule{{ID: "human"}}}
			}
			return last
		}
		res := w.gate().Do(t.Context(), call())
		if !errors.Is(res.Err, bailey.Denied) || w.happened("run -- hello") {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

// TestRuleRewrittenWhileWaiting checks that a grant counts only for the rule that asked, and not for another rule with
// the same id.
func TestRuleRewrittenWhileWaiting(t *testing.T) {
	for digest, runs := range map[string]bool{"before": true, "after": false} {
		w := newWorld(t)
		w.decide = func(n int, r bailey.Request) bailey.Decision {
			rule := bailey.Rule{ID: "human", Digest: "before"}
			if n > 1 {
				rule.Digest = digest
			}
			if slices.Contains(r.Approvals, "human") {
				return bailey.Decision{Effect: bailey.Allow, Policy: "p"}
			}
			return bailey.Decision{Effect: bailey.Ask, Asks: []bailey.Rule{rule}, Rules: []bailey.Rule{rule}, Policy: "p"}
		}
		res := w.gate().Do(t.Context(), call())
		if ran := w.happened("run -- hello"); ran != runs || ran != (res.Err == nil) {
			t.Errorf("digest %s: ran %v, %v", digest, ran, res.Err)
		}
		if !runs && (!errors.Is(res.Err, bailey.Denied) || !strings.Contains(res.Err.Error(), "rule human was changed") || bailey.HintOf(res.Err) == "") {
			t.Errorf("%v", res.Err)
		}
		if !runs && (w.one().Status != bailey.Refused || w.one().Decision != "deny" || w.one().PolicyDigest != "p") {
			t.Errorf("outcome %+v", w.one())
		}
	}
}

// TestPolicyReplacedWhileDeciding checks that the decisions without and with the grant must come from the same policy.
func TestPolicyReplacedWhileDeciding(t *testing.T) {
	w := newWorld(t)
	ask(w)
	inner := w.decide
	w.decide = func(n int, r bailey.Request) bailey.Decision {
		d := inner(n, r)
		d.Policy = fmt.Sprint(n)
		return d
	}
	if res := w.gate().Do(t.Context(), call()); !errors.Is(res.Err, bailey.Conflict) || w.happened("run -- hello") || res.Executed {
		t.Errorf("%+v", res)
	}
}

// TestQuestionBindsTheCall checks that a question contains everything that will run, and beside each value its redacted
// text.
func TestQuestionBindsTheCall(t *testing.T) {
	w, in := newWorld(t), call()
	ask(w)
	in.Input["word"], in.Input["dir"], in.Patience = "my SECRET", "/the SECRET place", time.Minute
	w.plan = "mount the SECRET place"
	var q bailey.Question
	given := w.answer
	w.answer = func(asked bailey.Question) bailey.Answer { q = asked; return given(asked) }
	if res := w.gate().Do(t.Context(), in); res.Err != nil {
		t.Fatal(res.Err)
	}
	if len(q.Argv) != 3 || q.Argv[2].Text != "my [R]" || q.Argv[2].Value.Reveal() != "my SECRET" || q.Argv[0].Text != "echo" {
		t.Errorf("argv %v", q.Argv)
	}
	if strings.Contains(q.Dir.Text, "SECRET") || !strings.Contains(q.Dir.Value.Reveal(), "SECRET") {
		t.Errorf("dir %q", q.Dir.Text)
	}
	if q.Plan.Text != "withheld" || q.Plan.Value.Reveal() != "d" || q.Cage != "full" {
		t.Errorf("plan %q", q.Plan.Text)
	}
	if len(q.Inputs) != 2 || q.Inputs[0].Name != "dir" || q.Inputs[1].Text != `"my [R]"` || q.Inputs[1].Value.Reveal() != `"my SECRET"` {
		t.Errorf("inputs %v", q.Inputs)
	}
	if q.Contents != bailey.NotBound {
		t.Errorf("a directory's contents are %q", q.Contents)
	}
	if q.Manifest == "" || q.Resource.Kind != "local" || q.Principal.Person != "p" || q.Session != "s-1" || q.Patience != time.Minute || q.Impact != "readOnly, readOnly" || len(q.Rules) != 1 {
		t.Errorf("%+v", q)
	}
}

// TestClientIsContext checks that the decision does not depend on the client's statements about itself.
func TestClientIsContext(t *testing.T) {
	var seen []bailey.Request
	for _, client := range []string{"", `{"name":"claude","roles":["sre"],"person":"ada","agent":"root"}`} {
		w := newWorld(t)
		w.decide = func(_ int, r bailey.Request) bailey.Decision {
			r.Time = time.Time{}
			seen = append(seen, r)
			return bailey.Decision{}
		}
		in := call()
		in.Client = client
		w.gate().Do(t.Context(), in)
	}
	if len(seen) != 2 || !reflect.DeepEqual(seen[0], seen[1]) || seen[1].Principal.Agent != "a" {
		t.Errorf("%+v", seen)
	}
}

// TestHooksOnlyTighten checks that no verdict of a hook loosens a stricter decision, and that a changed input is
// restored, checked and decided again.
func TestHooksOnlyTighten(t *testing.T) {
	w := newWorld(t)
	ask(w)
	w.answer = answer(bailey.Answer{})
	w.verdict = Verdict{Effect: bailey.Allow}
	if res := w.gate().Do(t.Context(), call()); !errors.Is(res.Err, bailey.Denied) {
		t.Errorf("a hook's allow answered a person's question: %+v", res)
	}

	w = newWorld(t)
	w.verdict = Verdict{Effect: bailey.Ask, Rule: bailey.Rule{ID: "hook:x"}}
	if res := w.gate().Do(t.Context(), call()); res.Err != nil || !w.happened("ask") {
		t.Errorf("a hook's question was not asked: %+v", res)
	}

	w = newWorld(t)
	w.verdict = Verdict{Effect: bailey.Ask, Rule: bailey.Rule{ID: "hook:x"}}
	w.answer = answer(bailey.Answer{Reason: "no"})
	if res := w.gate().Do(t.Context(), call()); !errors.Is(res.Err, bailey.Denied) || w.happened("lend") {
		t.Errorf("a hook's question was answered no and the call went on: %+v", res)
	}

	w = newWorld(t)
	w.verdict = Verdict{Effect: bailey.Allow, Input: map[string]any{"word": "changed"}}
	res := w.gate().Do(t.Context(), call())
	want := []string{"intent", "restore", "plan", "decide", "pre", "restore", "plan", "decide", "decide", "take", "lend", "run -- changed", "post", "outcome"}
	if res.Err != nil || !slices.Equal(w.did, want) || w.closed != 2 {
		t.Errorf("%v closed %d\ndid  %v\nwant %v", res.Err, w.closed, w.did, want)
	}

	w = newWorld(t)
	w.verdict = Verdict{Effect: bailey.Allow, Input: map[string]any{"word": "changed"}}
	w.decide = func(n int, r bailey.Request) bailey.Decision {
		if r.Input["word"] == "changed" {
			return bailey.Decision{Reason: "not that"}
		}
		return bailey.Decision{Effect: bailey.Allow}
	}
	if res := w.gate().Do(t.Context(), call()); !errors.Is(res.Err, bailey.Denied) {
		t.Errorf("a changed input was not decided: %+v", res)
	}

	w = newWorld(t)
	ask(w)
	looser := w.decide
	w.decide = func(n int, r bailey.Request) bailey.Decision {
		if r.Input["word"] == "changed" {
			return bailey.Decision{Effect: bailey.Allow}
		}
		return looser(n, r)
	}
	w.verdict = Verdict{Effect: bailey.Allow, Input: map[string]any{"word": "changed"}}
	if w.gate().Do(t.Context(), call()); !w.happened("ask") {
		t.Errorf("a hook changed the input and the question was gone: %v", w.did)
	}
}

// TestDenialNamesTheLesserCage checks that the hint of a denial contains the remedy for a lesser cage, because that
// cage may be the reason. It must do so at each decision.
func TestDenialNamesTheLesserCage(t *testing.T) {
	for deny := range 3 {
		w := newWorld(t)
		w.lesser = "no mounts here; install the profile"
		w.decide = func(n int, _ bailey.Request) bailey.Decision {
			if n == deny {
				return bailey.Decision{Reason: "because", Hint: "ask elsewhere"}
			}
			return bailey.Decision{Effect: bailey.Allow}
		}
		res := w.gate().Do(t.Context(), call())
		want := "ask elsewhere; this host supports only the jail full: no mounts here; install the profile"
		if deny == 0 {
			want = ""
		}
		if got := bailey.HintOf(res.Err); got != want {
			t.Errorf("denied at decision %d: the hint is %q", deny, got)
		}
	}
}

// TestDryRun checks that a dry run decides and plans, and does not ask, lend or run anything.
func TestDryRun(t *testing.T) {
	w, in := newWorld(t), call()
	in.DryRun = true
	res := w.gate().Do(t.Context(), in)
	if res.Err != nil || res.Executed || !slices.Equal(w.did, []string{"intent", "restore", "plan", "decide", "pre", "outcome"}) {
		t.Errorf("%+v after %v", res, w.did)
	}
	if want := []string{"echo", "--", "hello"}; !slices.Equal(res.Argv, want) || res.Cage == nil {
		t.Errorf("argv %v, cage %v", res.Argv, res.Cage)
	}
	w = newWorld(t)
	ask(w)
	if res := w.gate().Do(t.Context(), in); res.Status != bailey.Pending || w.happened("ask") {
		t.Errorf("%+v after %v", res, w.did)
	}
}

// TestSecretsStayOut checks that intent, outcome, question and output are redacted, and that the output of a hook is
// redacted again.
func TestSecretsStayOut(t *testing.T) {
	w, in := newWorld(t), call()
	ask(w)
	in.Input["word"], in.Input["dir"] = "my SECRET", "/the SECRET place"
	var question bailey.Question
	given := w.answer
	w.answer = func(q bailey.Question) bailey.Answer { question = q; return given(q) }
	w.lease = bailey.Lease{IDs: []string{"l-1"}, Env: []string{"TOKEN=SECRET"}, Secrets: []bailey.Secret{bailey.NewSecret("SECRET")}}
	w.run = func(lent bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
		fmt.Fprintf(s.Stdout, "%v", lent.Env)
		return bailey.Exit{}, nil
	}
	w.post = func(o Output) Output { return Output{Stdout: append(o.Stdout, " and SECRET"...)} }
	res := w.gate().Do(t.Context(), in)
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	said := fmt.Sprintf("%s %+v %+v %+v", w.intents[0].Input, w.outcomes, question, res.Stdout)
	if strings.Contains(said, "SECRET") || strings.Contains(string(res.Stdout), "SECRET") {
		t.Errorf("a secret came out: %s\n%s", said, res.Stdout)
	}
	if got := string(res.Stdout); got != "[TOKEN=[R]] and [R]" {
		t.Errorf("stdout %q", got)
	}
	if !slices.Equal(w.one().Leases, []string{"l-1"}) || w.one().Redactions != 1 || !w.happened("learn") {
		t.Errorf("outcome %+v", w.one())
	}
}

// TestNoCallHasATerminal checks that a call has no terminal and no input. Only a person's own run has them.
func TestNoCallHasATerminal(t *testing.T) {
	for _, change := range []func(*bailey.Call){
		func(*bailey.Call) {},
		func(c *bailey.Call) { c.Door, c.Patience, c.Text = "cli", time.Minute, true },
		func(c *bailey.Call) { c.Stdout, c.Stderr = io.Discard, io.Discard },
		func(c *bailey.Call) { c.Session.Unattended, c.DryRun = true, true },
	} {
		w, in := newWorld(t), call()
		change(&in)
		if res := w.gate().Do(t.Context(), in); res.Err != nil || w.ttys > 0 || !w.happened("plan") {
			t.Errorf("%+v: %d terminals, %v", in, w.ttys, res.Err)
		}
	}
}

// TestPlansHoldNoSecret checks that a plan with a secret is recorded as a digest only, and any other plan as text.
func TestPlansHoldNoSecret(t *testing.T) {
	for plan, want := range map[string]string{"bind \"/a\"": "bind \"/a\"", "bind \"/SECRET\"": ""} {
		w := newWorld(t)
		w.plan = plan
		g := w.gate()
		looked, err := g.Cage(t.Context(), call())
		if err != nil || len(w.intents) > 0 || w.happened("run") || w.closed != 1 {
			t.Errorf("a look: %v, did %v", err, w.did)
		}
		res := g.Do(t.Context(), call())
		for _, cage := range []*bailey.Cage{&looked, res.Cage, w.one().Cage} {
			digest := "d"
			if cage == res.Cage && want == "" {
				digest = "" // the rest of the text could be guessed
			}
			if cage.Plan != want || cage.PlanDigest != digest {
				t.Errorf("of %q the ledger gets %q %q", plan, cage.Plan, cage.PlanDigest)
			}
		}
	}
}

// TestErrorsAreRedacted checks that errors are redacted, because they may repeat data of the caller.
func TestErrorsAreRedacted(t *testing.T) {
	w, in := newWorld(t), call()
	in.Capability, in.Client, in.Dir = "t.SECRET", "SECRET", "/SECRET"
	res := w.gate().Do(t.Context(), in)
	if !errors.Is(res.Err, bailey.NotFound) || strings.Contains(res.Err.Error()+bailey.HintOf(res.Err), "SECRET") {
		t.Errorf("the answer is %v (%s)", res.Err, bailey.HintOf(res.Err))
	}
	w2, in := newWorld(t), call()
	in.Input["dir"] = "/x"
	w2.placeErr = &bailey.Error{Kind: bailey.Denied, Message: "no SECRET", Hint: "hide the SECRET"}
	res = w2.gate().Do(t.Context(), in)
	if !errors.Is(res.Err, bailey.Denied) || res.Err.Error() != "no [R]" || bailey.HintOf(res.Err) != "hide the [R]" {
		t.Errorf("the answer is %v (%s)", res.Err, bailey.HintOf(res.Err))
	}
	if said := fmt.Sprintf("%+v %+v", w.intents, w.outcomes); strings.Contains(said, "SECRET") {
		t.Errorf("a receipt holds it: %s", said)
	}
}

// TestLeaseEndsWithTheCall checks that the lease is returned once on every exit.
func TestLeaseEndsWithTheCall(t *testing.T) {
	for _, broken := range []error{nil, errBroken} {
		w := newWorld(t)
		returned := 0
		w.lease = bailey.Lease{Return: func() { returned++ }}
		w.runErr = broken
		w.gate().Do(t.Context(), call())
		if returned != 1 {
			t.Errorf("with %v: returned %d times", broken, returned)
		}
	}
}

// TestCheckedIsWhatRuns checks that the tool gets the canonical path of the descriptor, rendered once.
func TestCheckedIsWhatRuns(t *testing.T) {
	w, in := newWorld(t), call()
	in.Input["dir"] = "/link"
	var seen map[string]string
	w.decide = func(_ int, r bailey.Request) bailey.Decision {
		seen = r.Paths
		return bailey.Decision{Effect: bailey.Allow}
	}
	if res := w.gate().Do(t.Context(), in); res.Err != nil {
		t.Fatal(res.Err)
	}
	if seen["dir"] != "/real/link" || !slices.Equal(w.one().Paths, []string{"/real/link"}) || w.one().Cwd != "/real/link" {
		t.Errorf("policy saw %v, the receipt %v and %q", seen, w.one().Paths, w.one().Cwd)
	}
}

// TestFloodIsCutAndDrained checks that output is cut after redaction, and that the limit never blocks or fails the
// tool.
func TestFloodIsCutAndDrained(t *testing.T) {
	w, in := newWorld(t), call()
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	const total = 40 * 64 << 10
	w.run = func(_ bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
		for range 40 {
			if n, err := s.Stdout.Write(chunk); n != len(chunk) || err != nil {
				t.Errorf("a write took %d, %v", n, err)
			}
		}
		return bailey.Exit{}, nil
	}
	var out bytes.Buffer
	in.Stdout, in.Stderr = &out, io.Discard
	res := w.gate().Do(t.Context(), in)
	if res.Err != nil || !res.Truncated || out.Len() != bailey.OutputCap || w.one().StdoutBytes != total || res.Stdout != nil || len(w.one().StdoutBody.Bytes) != bailey.OutputCap {
		t.Errorf("%v truncated %v, %d bytes out, receipt %d", res.Err, res.Truncated, out.Len(), w.one().StdoutBytes)
	}
}

// TestNewRefusesGaps checks that New returns an error if a stage is missing or a runner is nil.
func TestNewRefusesGaps(t *testing.T) {
	whole := newWorld(t).gate().Config
	for name, cut := range map[string]func(*Config){
		"ledger": func(c *Config) { c.Ledger = nil }, "catalog": func(c *Config) { c.Catalog = nil },
		"places": func(c *Config) { c.Places = nil }, "policy": func(c *Config) { c.Policy = nil },
		"hooks": func(c *Config) { c.Hooks = nil }, "approver": func(c *Config) { c.Approver = nil },
		"lender": func(c *Config) { c.Lender = nil }, "redactor": func(c *Config) { c.Redactor = nil },
		"runners": func(c *Config) { c.Runners = nil }, "log": func(c *Config) { c.Log = nil },
		"nil runner": func(c *Config) { c.Runners = map[pack.Isolation]bailey.Runner{pack.Jail: nil} },
	} {
		c := whole
		cut(&c)
		if _, err := New(c); err == nil {
			t.Errorf("a gate without %s was made", name)
		}
	}
}

// TestNoRunnerRefuses checks that a call is refused if its isolation has no runner, and that it does not run in a
// lesser cage.
func TestNoRunnerRefuses(t *testing.T) {
	w := newWorld(t)
	c := w.gate().Config
	c.Runners = map[pack.Isolation]bailey.Runner{pack.MicroVM: w}
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if res := g.Do(t.Context(), call()); !errors.Is(res.Err, bailey.Unavailable) || *w.one().Executed {
		t.Errorf("%+v", res)
	}
}

// TestEndSession checks that each part that keeps state per session is told when the session ends.
func TestEndSession(t *testing.T) {
	w := newWorld(t)
	if err := w.gate().EndSession(t.Context(), "s-1"); err != nil || !slices.Equal(w.did, []string{"end", "end budget", "end questions", "end runner"}) {
		t.Errorf("%v, %v", err, w.did)
	}
}

// TestLongArguments checks that long arguments are not in the ledger entry, and that their length is.
func TestLongArguments(t *testing.T) {
	w, in := newWorld(t), call()
	in.Input["word"] = strings.Repeat("w", bailey.InlineCap)
	if res := w.gate().Do(t.Context(), in); res.Err != nil {
		t.Fatal(res.Err)
	}
	if i := w.intents[0]; i.Input != nil || i.InputBytes <= bailey.InlineCap || w.one().Argv != nil {
		t.Errorf("%d bytes inline, %d said, argv %v", len(i.Input), i.InputBytes, w.one().Argv)
	}
	if b := w.intents[0].InputBody; b == nil || len(b.Bytes) != w.intents[0].InputBytes || !bytes.Contains(b.Bytes, []byte(`"word":"www`)) {
		t.Errorf("beside the ledger goes %+v", b)
	}
}

// TestBodyIsWhatTheCallerGot checks that the stored output equals the caller's: redacted, as hooks left it, and cut at
// the limit. It must be nil if there is no output.
func TestBodyIsWhatTheCallerGot(t *testing.T) {
	for name, streamed := range map[string]bool{"kept": false, "streamed": true} {
		w, in := newWorld(t), call()
		in.Input["word"] = "SECRET " + strings.Repeat("w", bailey.InlineCap)
		w.lease = bailey.Lease{Secrets: []bailey.Secret{bailey.NewSecret("SECRET")}}
		w.run = func(_ bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
			fmt.Fprint(s.Stdout, "a SECRET")
			return bailey.Exit{}, nil
		}
		var out bytes.Buffer
		if streamed {
			in.Stdout, in.Stderr = &out, io.Discard
		}
		res := w.gate().Do(t.Context(), in)
		got := string(res.Stdout) + out.String()
		o := w.one()
		if res.Err != nil || got != "a [R]" || o.StdoutBody == nil || string(o.StdoutBody.Bytes) != got || o.StderrBody != nil {
			t.Errorf("%s: %v, the caller got %q, the ledger %+v", name, res.Err, got, o.StdoutBody)
		}
		if b := w.intents[0].InputBody; b == nil || bytes.Contains(b.Bytes, []byte("SECRET")) {
			t.Errorf("%s: the input is kept with its secret", name)
		}
	}
}

// TestProfileReachesPolicy checks that each decision sees the profiles that were in use when the call was looked up.
func TestProfileReachesPolicy(t *testing.T) {
	w := newWorld(t)
	w.profile = Profile{Name: "prod", Environment: "production"}
	var seen []string
	given := w.decide
	w.decide = func(n int, r bailey.Request) bailey.Decision {
		seen = append(seen, r.Profile+" "+r.Environ)
		w.profile = Profile{Name: "other", Environment: "other"}
		return given(n, r)
	}
	if res := w.gate().Do(t.Context(), call()); res.Err != nil {
		t.Fatal(res.Err)
	}
	if o := w.one(); o.Profile != "prod" || o.Environment != "production" {
		t.Errorf("the receipt says %q in %q", o.Profile, o.Environment)
	}
	if len(seen) != 2 || seen[0] != "prod production" || seen[1] != seen[0] {
		t.Errorf("policy saw %q", seen)
	}
}

// swapped is a catalog whose profile changes after it is first read.
type swapped struct {
	Catalog
	looked int
}

func (s *swapped) Profile() Profile {
	if s.looked++; s.looked == 1 {
		return Profile{Name: "prod", Environment: "production", Edition: "as it was"}
	}
	return Profile{Name: "prod", Environment: "production", Edition: "with other bindings"}
}

// TestProfileIsOne checks that a call uses the bindings of one profile, and that policy sees the same profile.
func TestProfileIsOne(t *testing.T) {
	w := newWorld(t)
	g := w.gate()
	g.Catalog = &swapped{Catalog: g.Catalog}
	res := g.Do(t.Context(), call())
	if !errors.Is(res.Err, bailey.Conflict) || w.happened("run") {
		t.Errorf("%v, %v", res.Err, w.did)
	}
	if res = g.Do(t.Context(), call()); res.Err != nil || w.outcomes[1].Environment != "production" {
		t.Errorf("%v, %+v", res.Err, w.outcomes)
	}
}
