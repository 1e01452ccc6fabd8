package bailey_test

import (
	"slices"
	"testing"
	"time"

	"bailey"
)

// TestCombine: of several asking rules the strictest of each term holds, in whatever order they come.
func TestCombine(t *testing.T) {
	const m = time.Minute
	for _, c := range []struct {
		name  string
		asks  []bailey.Rule
		roles []string
		count int
		ttl   time.Duration
	}{
		{"none", nil, nil, 1, 0},
		{"one", []bailey.Rule{{Role: "sre", Count: 2, TTL: 5 * m}}, []string{"sre"}, 2, 5 * m},
		{"a hook's, which sets no terms", []bailey.Rule{{ID: "hook"}}, nil, 1, 0},
		{"strictest count, shortest time", []bailey.Rule{{Count: 3, TTL: 10 * m}, {Count: 1, TTL: m}}, nil, 3, m},
		{"no time of its own shortens none", []bailey.Rule{{Count: 1, TTL: m}, {}}, nil, 1, m},
		{"anyone and a role is the role", []bailey.Rule{{Count: 1}, {Role: "sre", Count: 1}}, []string{"sre"}, 1, 0},
		{"two roles are both", []bailey.Rule{{Role: "sre", Count: 1, TTL: m}, {Role: "dba", Count: 2, TTL: 2 * m}, {Role: "sre", Count: 1, TTL: 3 * m}}, []string{"dba", "sre"}, 2, m},
	} {
		for range 2 {
			roles, count, ttl := bailey.Combine(c.asks)
			if !slices.Equal(roles, c.roles) || count != c.count || ttl != c.ttl {
				t.Errorf("%s: %v %d %v, want %v %d %v", c.name, roles, count, ttl, c.roles, c.count, c.ttl)
			}
			slices.Reverse(c.asks)
		}
	}
}
