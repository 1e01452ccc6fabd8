package bench

import (
	"errors"
	"testing"

	"bailey"
	"bailey/internal/policy"
)

// TestSample checks that the samples for benchmarks are decided correctly, with slices and over all rules.
func TestSample(t *testing.T) {
	for _, s := range []policySample{newPolicySample(10, 0), newPolicySample(400, 5)} {
		e, err := policy.Load(s.Config)
		if err != nil {
			t.Fatal(err)
		}
		bare, err := decideBare(e, s.Allowed)
		if err != nil || !bare() {
			t.Errorf("bare: %v", err)
		}
		if err := errors.Join(s.checkDecisions(e.Decide), s.checkDecisions(e.Unsliced().Decide), s.parseOnly()); err != nil {
			t.Error(err)
		}
		if err := s.checkDecisions(func(bailey.Request) bailey.Decision { return bailey.Decision{} }); err == nil {
			t.Error("who refuses everything is right")
		}
		if got := len(e.RulesFor(policy.Wrap)) - 2; got != s.Rules*0 && got != s.Rules/20 {
			t.Errorf("%d of %d rules are in every slice", got, s.Rules)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct {
		name            string
		rules, unscoped int
		flat            bool
	}{{"rules-10", 10, 0, false}, {"rules-10000", 10000, 0, false}, {"rules-10000-forbid5pct", 10000, 5, false}, {"flat-10000", 10000, 0, true}} {
		b.Run(c.name, func(b *testing.B) {
			s := newPolicySample(c.rules, c.unscoped)
			e, err := policy.Load(s.Config)
			if err != nil {
				b.Fatal(err)
			}
			decide := e.Decide
			if c.flat {
				decide = e.Unsliced().Decide
			}
			for b.Loop() {
				decide(s.Allowed)
			}
		})
	}
}
