package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// TestNever checks which actions the scopes of the rules alone deny, for any agent and for one agent.
func TestNever(t *testing.T) {
	const pushByClaude = `@id("p") permit (principal == Agent::"claude", action == Action::"git.push", resource);`
	for _, c := range []struct {
		text  string
		id    bailey.CapabilityID
		agent string
		want  bool
	}{
		{"", "git.push", "", true},
		{permitAll, "git.push", "", false},
		{permitAll, "no.such", "", true},
		{permitAll, "disk.wipe", "", true}, // irreversible, and no permit names it
		{permitAll + `@id("w") permit (principal, action == Action::"disk.wipe", resource) when { context.cage == "full" };`, "disk.wipe", "", false},
		{permitPush, "git.status", "", true},
		{pushByClaude, "git.push", "", false},
		{pushByClaude, "git.push", "claude", false},
		{pushByClaude, "git.push", "codex", true},
		{permitAll + blanketForbid(`in Action::"pack:git"`), "git.push", "", true},
		{permitAll + blanketForbid(`in Action::"pack:git"`), "other.look", "", false},
		{permitAll + `@id("f") @reason("x") forbid (principal == Agent::"claude", action, resource);`, "git.push", "claude", true},
		{permitAll + `@id("f") @reason("x") forbid (principal == Agent::"claude", action, resource);`, "git.push", "codex", false},
		{permitAll + `@id("f") @reason("x") forbid (principal, action, resource == Target::"local");`, "git.push", "", false},
		{permitAll + `@id("f") @reason("x") forbid (principal, action, resource) when { context.writes };`, "git.push", "", false},
		{permitPush + askMain, "git.push", "", false},
	} {
		if got := load(t, c.text).Never(c.id, c.agent); got != c.want {
			t.Errorf("%q for %q under\n%s: never is %v", c.id, c.agent, c.text, got)
		}
	}
	var zero Engine
	if !zero.Never("git.push", "") {
		t.Error("an engine without rules allows something")
	}
}

// TestNeverIsDenied checks that if Never reports an action, every request for it is denied.
func TestNeverIsDenied(t *testing.T) {
	ktest.Long(t)
	d := seeded(23)
	never := 0
	for range 200 {
		var b strings.Builder
		for i := range 1 + d.IntN(6) {
			if text := d.rule(i); loads(b.String() + text) {
				b.WriteString(text)
			}
		}
		e := load(t, b.String())
		for range 20 {
			r := d.request()
			if !e.Never(r.Capability, pick(d, "", r.Principal.Agent)) {
				continue
			}
			never++
			if got := e.Decide(r); got.Effect != bailey.Deny {
				t.Fatalf("%+v is %v under\n%s", r, got.Effect, b.String())
			}
		}
	}
	if never < 200 {
		t.Errorf("only %d were never allowed: the test says little", never)
	}
}

// TestLoadTime checks that ten thousand rules, a hundred of them broad forbids, load in seconds.
func TestLoadTime(t *testing.T) {
	ktest.Long(t)
	var text strings.Builder
	c := Config{}
	for i := range 10_000 {
		a := testActions()[0]
		a.ID, a.Pack = bailey.CapabilityID(fmt.Sprintf("p%d.a%d", i%100, i)), fmt.Sprintf("p%d", i%100)
		c.Actions = append(c.Actions, a)
		what, tail := "permit", ` when { context.cage == "full" }`
		if i%100 == 99 {
			what, tail = "forbid", ""
		}
		fmt.Fprintf(&text, "@id(\"r%d\") @reason(\"x\") %s (principal == Agent::\"a%d\", action in Action::\"pack:p%d\", resource)%s;\n", i, what, i, i%100, tail)
	}
	c.Sources = []Source{{"many.cedar", []byte(text.String())}}
	start := time.Now()
	if _, err := Load(c); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	t.Log(took)
	if took > 2*time.Minute { // seconds, unless each rule is compared with each other rule
		t.Errorf("took %v", took)
	}
}
