package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"bailey"
)

// TestForAgent checks that an agent gets only the reasons of the deciding rules, and no text or location of any rule.
func TestForAgent(t *testing.T) {
	const secret = "xyzzy" // a word that only conditions contain
	e := load(t, `@id("push") permit (principal, action == Action::"git.push", resource) when { context.dir != "`+secret+`" && context.cage != "vault" };
@id("status") @reason("looks") permit (principal, action == Action::"git.status", resource) when { context.environment == "`+secret+`" };
@id("wipe") permit (principal, action, resource) when { context.cage == "full" && context.dir != "`+secret+`" };
@id("asks") @reason("a release") @approval("role=sre") forbid (principal, action == Action::"git.push", resource)
when { context.input has ref && context.input.ref != "`+secret+`" && context.input.ref == "main" } unless { context.approvals.contains("asks") };
@id("night") @reason("not at night") forbid (principal, action == Action::"git.push", resource) when { context.time.hour == 3 && context.dir != "`+secret+`" };
@id("deep") @reason("too deep") forbid (principal, action == Action::"git.push", resource) when { context.input has depth && context.dir != "`+secret+`" && context.input.depth + 1 > 9000 };`)
	night := push()
	night.Time = night.Time.Add(4 * 3600e9)
	for _, c := range []struct {
		name    string
		req     bailey.Request
		outcome string
		reason  string
		rules   string
	}{
		{"allowed", push(), "allow", "allowed by push", "push wipe"},
		{"asked", push("ref", "main"), "ask", "a release", "asks"},
		{"forbidden", night, "deny", "not at night", "night"},
		{"broken", push("depth", json.Number("9223372036854775807")), "deny", "rule deep cannot be evaluated for this call", "deep"},
		{"unfit", push("depth", "x"), "deny", "input depth does not fit", ""},
		{"no rule", func() bailey.Request {
			r := request("git.status", map[string]any{"repo": "."})
			r.Cage = "none"
			return r
		}(), "deny", "no rule allows git.status", ""},
		{"irreversible", request("disk.wipe", nil), "deny", "cannot be undone", ""},
		{"secrets", given("JWT"), "deny", "given back secrets", ""},
		{"unknown", request("no.such", nil), "deny", "no action is called", ""},
	} {
		full := e.Explain(c.req)
		x := full.ForAgent()
		var ids []string
		for _, r := range x.Rules {
			ids = append(ids, string(r.ID))
		}
		if x.Outcome != c.outcome || !strings.Contains(x.Reason, c.reason) || strings.Join(ids, " ") != c.rules || x.Hint != full.Hint {
			t.Errorf("%s: %+v", c.name, x)
		}
		b, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{secret, "vault", "a.cedar", "forbid (", "permit (", "9000"} {
			if strings.Contains(string(b), word) || strings.Contains(x.String(), word) {
				t.Errorf("%s: %q is told: %s\n%s", c.name, word, b, x)
			}
		}
		if c.rules != "" && !strings.Contains(full.String(), secret) {
			t.Errorf("%s: the full explanation has no %q, so that this test sees nothing: %s", c.name, secret, full)
		}
	}
}
