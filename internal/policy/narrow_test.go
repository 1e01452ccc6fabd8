package policy

import (
	"strings"
	"testing"
)

// TestNarrow checks conditions that test/cedar found: they loaded, but the reference implementation refused them or
// decided differently. They must not load.
func TestNarrow(t *testing.T) {
	for _, c := range []struct{ cond, want string }{
		{`decimal("+1.0") == decimal("1.50")`, "decimal() has no effect here"},
		{`duration("60m") == duration("-9223372036854775808ms")`, "duration() has no effect here"},
		{`context.writes && datetime("2024-10-15").durationSince(datetime("0000-01-01")) < duration("1h").toHours()`, "() has no effect here"},
		{`context.writes && ip("127.0.0.1").isLoopback()`, "isLoopback() has no effect here"},
		{`-----9223372036854775807 <= context.time.hour`, "more than 4 of"},
		{`!!!!!context.writes`, "more than 4 of"},
		{`context.writes && -(-(-(-(-context.time.hour)))) == 1`, "more than 4 of"},
		{`if resource != resource then {a: "a"} != {owner: "a"} else context.writes`, "compares a value with itself"},
		{`context.writes == context.writes`, "compares a value with itself"},
		{`context.writes || [action].containsAll([resource])`, "containsAll works on strings and numbers"},
		{`context.writes || [Agent::"a"].containsAny([principal])`, "containsAny works on strings and numbers"},
		{`context.writes || [{a: resource}.a].containsAny([principal])`, "containsAny works on strings and numbers"},
	} {
		if _, err := tryLoad(when(c.cond)); err == nil || !strings.Contains(err.Error(), "a.cedar:1: rule r: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.cond, err)
		}
	}
	for _, cond := range []string{
		`!!!!context.writes`, `----1 == context.time.hour`, `!(context.time.hour == -1)`, `context.dir == context.cage`,
		`principal.roles.containsAll(["sre"])`, `["sre", principal.person].containsAny(principal.roles)`, `[Agent::"a"].contains(principal)`,
	} {
		if _, err := tryLoad(when(cond)); err != nil {
			t.Errorf("%s: %v", cond, err)
		}
	}
}
