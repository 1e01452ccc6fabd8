package wrap

import (
	"fmt"
	"slices"
	"testing"

	"bailey/internal/ktest"
)

// TestGuardedWhereGitLooks checks repositories whose objects are elsewhere, and files below git's own directories, to
// which a link may lead.
func TestGuardedWhereGitLooks(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x/HEAD", "x/commondir", "y/config", "y/objects/z", "y/refs/z", ".git/HEAD", ".git/config", ".git/x/.envrc", ".git/objects/x/.vscode/tasks.json",
		".git/refs/remotes/origin/HEAD", ".git/refs/remotes/origin/config", "HEAD", "objects/z", "refs/z", "logs/.envrc", "objects/.mcp.json", ".husky/pre-commit", "sub/.cursor/mcp.json")
	want := []string{".git/config", ".git/objects/x/.vscode", ".git/x/.envrc", ".husky", "logs/.envrc", "objects/.mcp.json", "sub/.cursor", "x/commondir"}
	if f, err := Guarded(dir); err != nil || !slices.Equal(f.Paths, want) {
		t.Errorf("%v\n%q, want\n%q", err, f.Paths, want)
	}
}

func TestNewIsQuick(t *testing.T) {
	ktest.Long(t)
	var now []string
	for i := range 200000 {
		now = append(now, fmt.Sprintf("d%07d/.envrc", i))
	}
	if got := New([]string{"a", "d0000001/.envrc"}, append(now, "d0000002/.envrc/x")); len(got) != 199999 {
		t.Error(len(got))
	}
}
