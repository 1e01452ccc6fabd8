package wrap

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"bailey"
)

// plans is a runner that accepts every job.
type plans struct {
	bailey.PlainRunner
	wall *bailey.Wall
}

func (p *plans) Plan(_ context.Context, job bailey.Job) (bailey.Run, error) {
	p.wall = job.Wall
	return nil, nil
}

// TestWorksNotInsideWhatIsGuarded checks that a tool gets no writable directory on which git or an editor acts: no
// mount would protect it. For example, pip.python could write a hook.
func TestWorksNotInsideWhatIsGuarded(t *testing.T) {
	project := t.TempDir()
	put(t, project, ".git/HEAD", ".git/config", ".git/objects/x", ".git/refs/x", ".git/hooks/x", ".git/modules/sub/hooks/x", ".vscode/x", "sub/.claude/skills/x",
		"bare/HEAD", "bare/objects/x", "bare/refs/x", "bare/hooks/x", ".claude/worktrees/one/.git", ".claude/worktrees/one/sub/x", "hooks/x", "config/x")
	for dir, want := range map[string]bailey.Kind{".git": bailey.Denied, ".git/hooks": bailey.Denied, ".git/modules/sub/hooks": bailey.Denied, ".vscode": bailey.Denied,
		"sub/.claude/skills": bailey.Denied, "bare/hooks": bailey.Denied, ".claude/worktrees": bailey.Denied,
		".": "", "sub": "", "bare": "", "hooks": "", "config": "", ".claude/worktrees/one": "", ".claude/worktrees/one/sub": ""} {
		dir := filepath.Join(project, dir)
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		_, err = NewWorks(&plans{}, filepath.Join(t.TempDir(), "caches"), func(bailey.SessionID) bool { return false }).Plan(t.Context(), bailey.Job{Capability: "pip.python", Dir: dir,
			Places: []bailey.Place{{Path: dir, File: f, Write: true}}, Wall: &bailey.Wall{Run: true}})
		if want == "" && err != nil || want != "" && bailey.KindOf(err) != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
