package policy

import (
	"strings"
	"testing"

	"bailey"
)

// TestGroupsOfOtherActions checks that a rule may test the groups of any action, not only those of the called one.
func TestGroupsOfOtherActions(t *testing.T) {
	e := load(t, permitAll+`@id("g") @reason("closed") forbid (principal, action, resource) when { Action::"git.status" in [Action::"risk:low"] };`)
	want(t, e.Decide(push()), bailey.Deny, "closed", "g")
	if _, err := tryLoad(when(`Action::"git.status" in Action::"risk:high"`)); err == nil {
		t.Error("git.status is of low risk, and a rule that wants it to be high loads")
	}
}

// TestReads checks that the context of a request contains only the attributes that the rules read, by any syntax.
func TestReads(t *testing.T) {
	for cond, want := range map[string]string{
		`context.dir == "a"`:                                                       "dir",
		`context["session"]["id"] == "a"`:                                          "session",
		`context has profile && context.profile like "a*"`:                         "profile",
		`(if context.writes then context.paths else context.absent).contains("a")`: "absent paths writes",
		`{a: context.time.hour}.a > 3`:                                             "time",
	} {
		e := load(t, `@id("r") permit (principal, action == Action::"git.push", resource) when { `+cond+` };`)
		got := map[string]bool{}
		for _, name := range e.contextReads("git.push") {
			got[string(name)] = true
		}
		for _, name := range append(strings.Fields(want), "input", "changed") { // the built-in rules read these two
			if !got[name] {
				t.Errorf("%s reads %v", cond, e.contextReads("git.push"))
			}
			delete(got, name)
		}
		if len(got) > 0 || len(e.contextReads("git.status")) != 2 {
			t.Errorf("%s reads %v as well, and %v elsewhere", cond, got, e.contextReads("git.status"))
		}
	}
}
