package bench

import (
	"context"
	"testing"
	"time"
)

// TestHookRows checks the ratios: the time that a hook adds relative to the time that a cold cage adds, and a chain
// relative to one hook and to five cold cages.
func TestHookRows(t *testing.T) {
	var ways []way
	times := map[string][]time.Duration{}
	for i, name := range []string{"bare", "cold-cage", "cold-five", "hook", "chain"} {
		ways = append(ways, way{name: name, do: func(context.Context) ([]time.Duration, error) { return nil, nil }})
		times[name] = []time.Duration{[]time.Duration{1, 3, 20, 4, 16}[i] * time.Millisecond}
	}
	rows := newHookRows(ways, times)
	hook, chain := rows[3], rows[4]
	if hook.OfCold == nil || *hook.OfCold != 1.5 || *hook.AtMost != 1.2 || hook.PerHook != nil {
		t.Errorf("%+v", hook)
	}
	if chain.PerHook == nil || *chain.PerHook != 4 || *chain.PerFive != 0.8 || *chain.AtMost != chainLength || chain.OfCold != nil {
		t.Errorf("%+v", chain)
	}
}
