package review

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// pastCall returns a past call without path inputs.
func pastCall(n int, effect bailey.Effect, id bailey.CapabilityID, input map[string]any) Past {
	p := Past{Request: request(id, input), Receipt: bailey.ReceiptID(fmt.Sprintf("r-%026d", n)), Was: effect}
	p.Request.Paths = nil
	return p
}

const replayRules = `
@id("look") permit (principal, action == Action::"git.status", resource);
@id("push") permit (principal, action == Action::"git.push", resource) when { context.cage == "full" };
@id("main") @reason("main is released") @approval("count=1") forbid (principal, action == Action::"git.push", resource)
when { context.input has ref && context.input.ref == "main" } unless { context.approvals.contains("main") };`

// TestReplay checks that changes are counted by capability, direction and rule, and that calls that cannot be decided
// again are counted separately.
func TestReplay(t *testing.T) {
	e := load(t, replayRules)
	gone := pastCall(9, bailey.Allow, "no.more", nil)
	open := pastCall(10, bailey.Deny, "git.push", nil)
	open.Unknown = "it is open"
	dry := pastCall(11, bailey.Allow, "git.status", map[string]any{"repo": "."})
	dry.DryRun, dry.Marks = true, []string{"another manifest"}
	past := []Past{gone, open, dry}
	for i := range 5 {
		past = append(past, pastCall(i, bailey.Allow, "git.push", map[string]any{"repo": ".", "ref": "main"}),
			pastCall(20+i, bailey.Deny, "git.push", map[string]any{"repo": ".", "ref": "dev"}),
			pastCall(30+i, bailey.Ask, "git.push", map[string]any{"repo": ".", "ref": "main"}))
	}
	past = append(past, pastCall(40, bailey.Allow, "system.echo", nil))
	r := Replay(e, slices.Values(past))
	if r.Calls != len(past) || r.Same != 6 || r.Changed != 11 || r.Undecided != 2 || r.DryRuns != 1 || len(r.Causes) != 2 || len(r.Changes) != 3 {
		t.Fatalf("%+v", r)
	}
	for i, want := range []struct {
		from, to, rule string
		calls          int
		first, last    int
	}{{"allow", "ask", "main at a.cedar:4", 5, 0, 4}, {"deny", "allow", "push at a.cedar:3", 5, 20, 24}, {"allow", "deny", "", 1, 40, 40}} {
		c := r.Changes[i]
		rule := ""
		if len(c.Rules) > 0 {
			rule = c.Rules[0]
		}
		id := func(n int) bailey.ReceiptID { return bailey.ReceiptID(fmt.Sprintf("r-%026d", n)) }
		if c.From != want.from || c.To != want.to || rule != want.rule || c.Calls != want.calls || c.First != id(want.first) || c.Last != id(want.last) || len(c.Receipts) != want.calls || c.Reason == "" {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	if len(r.Marked) != 1 || r.Marked[0].Calls != 1 {
		t.Errorf("marked: %+v", r.Marked)
	}
}

// TestReplayOfHidden checks that if a receipt hides a value, the call is undecidable only if a rule reads that value.
func TestReplayOfHidden(t *testing.T) {
	for _, c := range []struct {
		rules, hidden string
		want          bool
	}{
		{replayRules, "input.ref", false},
		{replayRules, "input.repo", true},
		{replayRules, "input", false},
		// the built-in rules read only names
		{`@id("a") permit (principal, action == Action::"git.push", resource);`, "input", true},
		{replayRules, "dir", true},
		{`@id("a") permit (principal, action, resource) when { context.dir like "/w*" };`, "dir", false},
		{`@id("a") permit (principal, action, resource) when { context.dir like "/w*" };`, "paths", true},
		{`@id("a") permit (principal, action, resource) unless { context.paths.contains("/w") };`, "paths", false},
		{`@id("a") permit (principal, action == Action::"git.push", resource) when { context.input has ref };`, "input.ref", true},
		{`@id("a") permit (principal, action == Action::"git.push", resource) when { context.input has meta && context.input.meta.owner == "me" };`, "input.meta", false},
		{`@id("a") permit (principal, action == Action::"git.push", resource) when { context["input"]["repo"] == "x" };`, "input.repo", false},
		// rule of another action
		{`@id("a") permit (principal, action == Action::"git.status", resource) when { context.input.repo == "x" };`, "input.repo", true},
	} {
		p := pastCall(1, bailey.Allow, "git.push", map[string]any{"repo": ".", "ref": "main"})
		p.Hidden = []string{c.hidden}
		e := load(t, c.rules)
		if why := WhyUndecidable(e, p); (why == "") != c.want {
			t.Errorf("%s hidden, %s: %q", c.hidden, c.rules, why)
		}
		if r := Replay(e, slices.Values([]Past{p})); (r.Undecided == 0) != c.want {
			t.Errorf("%s hidden, %s: %+v", c.hidden, c.rules, r)
		}
	}
}

// TestReplayIsBounded checks that a report of very many calls names a few of them and counts all.
func TestReplayIsBounded(t *testing.T) {
	ktest.Long(t)
	const calls = 50_000
	e := load(t, replayRules)
	var past iter.Seq[Past] = func(yield func(Past) bool) {
		p := pastCall(1, bailey.Allow, "git.push", map[string]any{"repo": ".", "ref": "main"})
		for range calls {
			if !yield(p) {
				return
			}
		}
	}
	r := Replay(e, past)
	if r.Calls != calls || r.Changed != calls || len(r.Changes) != 1 || len(r.Changes[0].Receipts) != maxListed || r.Changes[0].More != calls-maxListed {
		t.Errorf("%d calls, %d changed, %d kinds", r.Calls, r.Changed, len(r.Changes))
	}
}

// BenchmarkReplay measures one past call.
func BenchmarkReplay(b *testing.B) {
	e := load(b, replayRules)
	p := pastCall(1, bailey.Allow, "git.push", map[string]any{"repo": ".", "ref": "main"})
	for b.Loop() {
		Replay(e, slices.Values([]Past{p}))
	}
}
