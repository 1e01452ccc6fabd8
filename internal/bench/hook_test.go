package bench

import (
	"slices"
	"testing"
	"time"
)

// TestHookRows checks the ratios: the time that a hook adds relative to the time that a cold cage adds, and a chain
// relative to one hook and to five cold cages.
func TestHookRows(t *testing.T) {
	times := map[string][]time.Duration{}
	for i, name := range []string{"bare", "cold-cage", "cold-five", "hook", "chain"} {
		times[name] = []time.Duration{[]time.Duration{1, 3, 20, 4, 16}[i] * time.Millisecond}
	}
	rows := newHookRows(times)
	hook, chain, five := rows[5], rows[6], rows[7]
	if hook.Name != "hook" || hook.Ratio != 1.5 || hook.Of != "cold-cage - bare" || hook.Required != 1.2 {
		t.Errorf("%+v", hook)
	}
	if chain.Name != "chain" || chain.Ratio != 4 || chain.Of != "hook" || chain.Required != chainLength {
		t.Errorf("%+v", chain)
	}
	if five.Name != "chain" || five.Ratio != 0.8 || five.Of != "cold-five" || five.Required != 0 || len(rows) != 8 {
		t.Errorf("%+v", five)
	}
	if slices.ContainsFunc(rows[:5], func(r Row) bool { return r.Of != "bare" || r.Required != 0 }) {
		t.Errorf("%+v", rows[:5])
	}
}
