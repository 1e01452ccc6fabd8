//go:build linux

package day

import (
	"path/filepath"
	"slices"
	"strings"
)

// profiled activates a profile. A capability that is not active in it must be neither offered nor executed.
func (d *day) profiled() {
	u := d.u
	file := filepath.Join(u.home, ".bailey", "profiles", "look.yaml")
	u.must(u.home, "mkdir", "-p", filepath.Dir(file))
	u.write(file, "description: reading one project\npacks: [git]\ncapabilities: [git.log, git.status]\nfolders:\n  - {input: repo, path: "+u.project+"}\n")
	if out, code := u.does(u.project, "bailey", "profile", "use", "look"); code != 1 || !strings.Contains(out, "needs a person at a terminal") {
		d.t.Errorf("a profile put to use by nobody: exit code %d: %s", code, out)
	}
	if out := u.must(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "profile", "use", "look", "--yes"); !strings.Contains(out, "cannot be called then: ") || !strings.Contains(out, "git.diff") {
		d.t.Errorf("what a profile changes: %s", out)
	}
	if got := u.must(u.project, "bailey", "capabilities", "list"); strings.Contains(got, "git.diff") || !strings.Contains(got, "git.log") {
		d.t.Errorf("active: %s", got)
	}
	d.refused("denied", "git_diff", map[string]any{"repo": "."}, "git.diff is not active in the profile look")
	d.allowed("git_log", map[string]any{}, "lay the first stone")
	d.byCommand("denied", 77, "is not active", "git.diff", "-i", "repo=.")
	u.must(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "profile", "use", "--none", "--yes")
	if got := d.agent.tools(); !slices.Contains(got, "git_diff") {
		d.t.Errorf("without a profile the agent is offered %v", got)
	}
}
