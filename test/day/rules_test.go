//go:build linux

package day

import (
	"path/filepath"
	"strings"
)

// ownRules permit the agent's tools to write, ask before a push to main, and forbid a forced push.
const ownRules = `
@id("write")
@reason("commits and pushes in the workspace")
permit (principal, action in [Action::"git.commit", Action::"git.push"], resource == Target::"local")
when { context.cage == "full" };

@id("main-needs-human")
@reason("a push to main is a release")
@approval("count=1,ttl=10m")
forbid (principal, action == Action::"git.push", resource)
when { context.input.ref == "main" }
unless { context.approvals.contains("main-needs-human") };

@id("announcements")
@reason("a release is announced by a person's leave")
@approval("count=1,ttl=10m")
forbid (principal, action == Action::"system.echo", resource)
when { context.input.message like "release*" }
unless { context.approvals.contains("announcements") };

@id("never-forced")
@reason("a forced push loses what others pushed")
forbid (principal, action == Action::"git.push", resource)
when { context.input has force && context.input.force };
`

const ownTests = `tests:
  - call: git.push
    input: {repo: ., to: ../team.git, ref: main}
    expect: ask
    rules: [main-needs-human]
  - call: git.push
    input: {repo: ., to: ../team.git, ref: topic, force: true}
    expect: deny
`

const ownBudgets = `budgets:
  - {id: two-commits, per: agent, within: 24h, capabilities: [git.commit], calls: 2}
`

// rules writes, tests and applies the user's own rules. It checks the calls that they allow, deny and ask about, and
// the kill switch.
func (d *day) rules() {
	u := d.u
	dir, team := filepath.Join(u.home, ".bailey", "policy"), filepath.Join(u.project, "team.git")
	u.must(u.home, "git", "init", "-q", "--bare", team)
	u.must(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "init", "--yes")
	d.byCommand("denied", 1, "no rule allows git.commit", "git.commit", "-i", "repo=.", "-i", "message=early")
	u.must(u.project, "bailey", "policy", "init")
	u.write(filepath.Join(dir, "own.cedar"), ownRules)
	u.write(filepath.Join(dir, "own.test.yaml"), strings.Replace(ownTests, "expect: deny", "expect: allow", 1))
	if out, code := u.does(u.project, "bailey", "policy", "check"); code != 2 || !strings.Contains(out, "own.test.yaml:6: ") || !strings.Contains(out, "never-forced") {
		d.t.Errorf("a test that does not pass: exit code %d: %s", code, out)
	}
	u.write(filepath.Join(dir, "own.test.yaml"), ownTests)
	u.write(filepath.Join(dir, "budgets.yaml"), ownBudgets)
	if out := u.must(u.project, "bailey", "policy", "replay", "--since", "1d", "--with", dir); !strings.Contains(out, "git.commit") {
		d.t.Errorf("the replay does not know the commit that was denied: %s", out)
	}
	if out, code := u.does(u.project, "bailey", "policy", "apply"); code != 1 || !strings.Contains(out, "needs a person at a terminal") {
		d.t.Errorf("applied by nobody: exit code %d: %s", code, out)
	}
	if out := u.must(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "policy", "apply", "--yes"); !strings.Contains(out, "git.push") || !strings.Contains(out, " rules in use from the next call on") {
		d.t.Errorf("what apply shows: %s", out)
	}
	u.write(filepath.Join(u.project, "plan"), "stone\nstone\nstone\nroof\n")
	d.byCommand("ok", 0, "", "git.commit", "-i", "repo=.", "-i", "message=roof", "-i", "all=true")
	u.must(u.project, "git", "update-ref", "refs/heads/topic", "HEAD")
	d.byCommand("denied", 1, "no approval can be requested", "git.push", "-i", "repo=.", "-i", "to=team.git", "-i", "ref=main")
	u.must(u.project, "git", "update-ref", "refs/heads/main", "HEAD~1")
	d.byCommand("ok", 0, "", "git.push", "-i", "repo=.", "-i", "to=team.git", "-i", "ref=topic")
	d.byCommand("pending", 2, "a push to main is a release", "git.push", "-i", "repo=.", "-i", "to=team.git", "-i", "ref=main")
	d.byCommand("denied", 1, "loses what others pushed", "git.push", "-i", "repo=.", "-i", "to=team.git", "-i", "ref=topic", "-i", "force=true")
	if out := u.must(u.project, "git", "-C", team, "log", "--oneline", "topic"); !strings.Contains(out, "roof") {
		d.t.Errorf("what was pushed: %s", out)
	}
	u.write(filepath.Join(dir, "own.cedar"), strings.ReplaceAll(ownRules, "forbid", "permit"))
	if out := u.must(u.project, "bailey", "status"); !strings.Contains(out, "DRIFT") {
		d.t.Errorf("status does not tell that the rules were changed by hand: %s", out)
	}
	d.byCommand("denied", 1, "loses what others pushed", "git.push", "-i", "repo=.", "-i", "to=team.git", "-i", "ref=topic", "-i", "force=true")
	u.write(filepath.Join(dir, "own.cedar"), ownRules)

	u.write(filepath.Join(u.project, "plan"), "stone\nstone\nstone\nroof\nflag\n")
	d.byCommand("ok", 0, "", "git.commit", "-i", "repo=.", "-i", "message=again", "-i", "all=true", "-i", "author=Me <me@localhost>")
	d.byCommand("denied", 1, "budget two-commits is used up", "git.commit", "-i", "repo=.", "-i", "message=more", "-i", "all=true")
	u.must(u.project, "bailey", "kill", "lunch")
	d.refused("denied", "system_date", map[string]any{}, "everything is stopped by the kill switch", "lunch")
	u.must(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "resume", "--yes")
	d.allowed("system_date", map[string]any{})
}

// byCommand makes a call on the command line.
func (d *day) byCommand(outcome string, code int, tells string, args ...string) {
	d.t.Helper()
	d.want = append(d.want, outcome)
	if out, got := d.u.does(d.u.project, "bailey", append([]string{"run"}, args...)...); got != code || !strings.Contains(out, tells) {
		d.t.Errorf("%v: exit code %d, want %d and %q: %s", args, got, code, tells, out)
	}
}
