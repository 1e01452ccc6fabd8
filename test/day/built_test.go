//go:build linux

package day

import (
	"os"
	"path/filepath"
	"strings"
)

// built has the agent test, fix, build and commit a small Go project with calls only. The code that is built runs in a
// cage, and must find neither the user's key nor a git hook that it could write.
func (d *day) built() {
	u := d.u
	at := filepath.Join(u.project, "pavilion")
	if _, err := os.Stat("/usr/local/go/bin/go"); err != nil {
		if _, err := os.Stat("/usr/bin/go"); err != nil {
			d.t.Log("go lies where no call looks for it: nothing is built today")
			return
		}
	}
	policy := filepath.Join(u.home, ".bailey", "policy")
	u.write(filepath.Join(policy, "own.cedar"), strings.Replace(ownRules, `Action::"git.commit", `, `Action::"git.commit", Action::"git.add", `, 1))
	u.write(filepath.Join(policy, "budgets.yaml"), strings.Replace(ownBudgets, "calls: 2", "calls: 9", 1))
	u.must(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "policy", "apply", "--yes")
	d.agent.leave() // it got its list of tools when it connected
	d.agent = d.hire()

	u.write(filepath.Join(at, "go.mod"), "module example.org/pavilion\n\ngo 1.20\n")
	u.write(filepath.Join(at, "roof.go"), "package pavilion\n\nfunc Tiles(rows int) int { return rows + 12 }\n")
	u.write(filepath.Join(at, "roof_test.go"), `package pavilion

import (
	"os"
	"testing"
)

func TestTiles(t *testing.T) {
	if Tiles(3) != 36 {
		t.Error("three rows have", Tiles(3))
	}
}

func TestNobodyLooks(t *testing.T) {
	if _, err := os.ReadFile("`+d.key+`"); err == nil {
		t.Error("the key is there")
	}
	if os.WriteFile("../.git/hooks/post-commit", nil, 0o755) == nil {
		t.Error("a hook was written")
	}
}
`)
	in := map[string]any{"dir": "pavilion"}
	d.refused("failed", "go_test", in, "three rows have 15")
	u.write(filepath.Join(at, "roof.go"), "package pavilion\n\nfunc Tiles(rows int) int { return rows * 12 }\n")
	d.allowed("go_test", in, "ok")
	d.allowed("go_vet", in)
	d.byCommand("pending", 2, "a registry learns", "go.tidy", "-i", "dir=pavilion")
	d.allowed("git_add", map[string]any{"repo": ".", "paths": []any{"pavilion"}})
	d.allowed("git_commit", map[string]any{"repo": ".", "message": "raise a pavilion"}, "raise a pavilion")
	if out := u.must(u.project, "git", "show", "--stat", "HEAD"); !strings.Contains(out, "pavilion/roof_test.go") {
		d.t.Errorf("what was committed: %s", out)
	}
}
