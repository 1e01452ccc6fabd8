package policy

import (
	"strings"
	"testing"

	"bailey"
)

// TestLevel checks that a rule sets the level of proof that an answer must have, and that the question shows the
// strictest level of all asking rules.
func TestLevel(t *testing.T) {
	rule := func(id, terms string) string {
		return `@id("` + id + `") @reason("x") @approval("` + terms + `") forbid (principal, action == Action::"git.push", resource) unless { context.approvals.contains("` + id + `") };` + "\n"
	}
	for _, c := range []struct {
		name, rules string
		level       bailey.Level
		hint        string
	}{
		{"none", rule("a", "count=1"), "", "a requires 1, valid for 10m"},
		{"any answer", rule("a", "level=local"), bailey.Local, "a requires 1, valid for 10m"},
		{"signed", rule("a", "role=sre,level=signed-software,count=2"), bailey.SignedSoftware, "a requires 2 with role sre, with a signature, valid for 10m"},
		{"touched", rule("a", "level=signed-touch"), bailey.SignedTouch, "a requires 1, with a touched key, valid for 10m"},
		{"the strictest, whichever comes first", rule("a", "level=signed-touch") + rule("b", "level=signed-software"), bailey.SignedTouch, "a, b require 1 together, with a touched key, valid for 10m"},
		{"the strictest, whichever comes last", rule("a", "level=local") + rule("b", "count=1") + rule("c", "level=signed-software"), bailey.SignedSoftware, "a, b, c require 1 together, with a signature, valid for 10m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := load(t, permitPush, c.rules).Decide(push())
			if d.Effect != bailey.Ask || bailey.Combine(d.Asks).Level != c.level || !strings.Contains(d.Hint, c.hint) {
				t.Errorf("%v %q %q", d.Effect, bailey.Combine(d.Asks).Level, d.Hint)
			}
		})
	}
}

// TestStarterWantsTouch checks that the starter policy denies irreversible calls. If a permit names such a call, the
// policy must ask for a touched key.
func TestStarterWantsTouch(t *testing.T) {
	e := load(t, string(Starter().Text), `@id("wipe") permit (principal, action == Action::"disk.wipe", resource);`)
	d := e.Decide(request("disk.wipe", nil))
	want(t, d, bailey.Ask, "cannot be undone", "irreversible-wants-touch")
	if w := bailey.Combine(d.Asks); w.Level != bailey.SignedTouch || w.Count != 1 {
		t.Errorf("%+v", w)
	}
	r := request("disk.wipe", nil)
	r.Approvals = []bailey.RuleID{"irreversible-wants-touch"}
	want(t, e.Decide(r), bailey.Allow, "", "wipe")
}
