package bailey_test

import (
	"slices"
	"testing"
	"time"

	"bailey"
)

// TestCombine checks that if several rules ask, the strictest value of each term applies, in any order of the rules.
func TestCombine(t *testing.T) {
	const m = time.Minute
	for _, c := range []struct {
		name  string
		asks  []bailey.Rule
		roles []string
		count int
		ttl   time.Duration
		level bailey.Level
	}{
		{"none", nil, nil, 1, 0, ""},
		{"one", []bailey.Rule{{Role: "sre", Count: 2, TTL: 5 * m}}, []string{"sre"}, 2, 5 * m, ""},
		{"a hook's, which sets no terms", []bailey.Rule{{ID: "hook"}}, nil, 1, 0, ""},
		{"strictest count, shortest time", []bailey.Rule{{Count: 3, TTL: 10 * m}, {Count: 1, TTL: m}}, nil, 3, m, ""},
		{"no time of its own shortens none", []bailey.Rule{{Count: 1, TTL: m}, {}}, nil, 1, m, ""},
		{"anyone and a role is the role", []bailey.Rule{{Count: 1}, {Role: "sre", Count: 1}}, []string{"sre"}, 1, 0, ""},
		{"two roles are both", []bailey.Rule{{Role: "sre", Count: 1, TTL: m}, {Role: "dba", Count: 2, TTL: 2 * m}, {Role: "sre", Count: 1, TTL: 3 * m}}, []string{"dba", "sre"}, 2, m, ""},
		{"the strictest level", []bailey.Rule{{Level: bailey.SignedTouch}, {}, {Level: bailey.Local}}, nil, 1, 0, bailey.SignedTouch},
		{"a level that nobody knows", []bailey.Rule{{Level: "sworn"}, {Level: bailey.SignedTouch}}, nil, 1, 0, "sworn"},
	} {
		for range 2 {
			w := bailey.Combine(c.asks)
			if !slices.Equal(w.Roles, c.roles) || w.Count != c.count || w.TTL != c.ttl || w.Level != c.level {
				t.Errorf("%s: %v, want %v", c.name, w, c)
			}
			slices.Reverse(c.asks)
		}
	}
}

// TestLevels checks that a higher level meets a lower one. An unknown level must meet no level, and no level must meet
// it.
func TestLevels(t *testing.T) {
	order := []bailey.Level{"", bailey.Local, bailey.SignedSoftware, bailey.SignedTouch}
	for i, has := range order {
		for j, want := range order {
			if got := has.Meets(want); got != (i >= j && has != "") {
				t.Errorf("%q meets %q: %v", has, want, got)
			}
		}
		if has.Meets("sworn") || bailey.Level("sworn").Meets(has) {
			t.Errorf("%q and a level that is none", has)
		}
	}
}
