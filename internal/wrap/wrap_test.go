//go:build linux

package wrap

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
)

func put(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGuarded checks that exactly the guarded files are found, at any depth, in nested repositories, submodules,
// worktrees and bare repositories.
func TestGuarded(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, ".git/HEAD", ".git/config", ".git/hooks/pre-commit", ".git/objects/aa/bb", ".git/refs/heads/hooks", ".git/modules/sub/HEAD", ".git/modules/sub/config",
		".git/worktrees/w/HEAD", ".git/worktrees/w/config.worktree", "sub/.git", "a/b/.git/HEAD", "a/b/.git/config", "a/.claude/settings.json", ".envrc", "x/.mcp.json",
		"bare/HEAD", "bare/config", "bare/objects/x", "bare/refs/x", "config", "hooks/x", "src/HEAD", "headless/.git/config")
	os.Symlink("/etc", filepath.Join(dir, ".vscode"))
	os.Symlink("..", filepath.Join(dir, "loop"))
	want := []string{".envrc", ".git/config", ".git/hooks", ".git/modules/sub/config", ".git/worktrees/w/config.worktree", ".vscode", "a/.claude", "a/b/.git/config",
		"bare/config", "headless/.git/config", "sub/.git", "x/.mcp.json"}
	f, err := Guarded(dir)
	if err != nil || !slices.Equal(f.Paths, want) || len(f.Unseen) > 0 {
		t.Errorf("%v %v\n%q, want\n%q", err, f.Unseen, f.Paths, want)
	}
	if err := f.Refused(dir); err == nil || !strings.Contains(err.Error(), ".vscode is a symbolic link") {
		t.Error(err)
	}
}

func begin(t *testing.T, s State, project string, keep bool) (*Run, string) {
	t.Helper()
	before, err := Guarded(project)
	if err != nil {
		t.Fatal(err)
	}
	r, home, err := s.Begin("claude", project, before, keep)
	if err != nil {
		t.Fatal(err)
	}
	return r, home
}

// TestQuarantine checks that existing files stay and new ones are moved as they are, without following links.
func TestQuarantine(t *testing.T) {
	project, s, outside := t.TempDir(), State(filepath.Join(t.TempDir(), "state")), t.TempDir()
	put(t, project, ".git/HEAD", ".git/config", ".envrc")
	put(t, outside, "precious")
	r, home := begin(t, s, project, false)
	put(t, project, ".git/hooks/post-checkout", "deep/er/.claude/settings.json", "deep/er/.claude/.mcp.json", "other")
	os.Symlink(outside, filepath.Join(project, ".vscode"))
	os.Link(filepath.Join(project, "other"), filepath.Join(project, ".mcp.json"))
	os.Mkdir(filepath.Join(project, "shut"), 0o755)
	put(t, project, "shut/.envrc")
	os.Chmod(filepath.Join(project, "shut"), 0)
	got, err := r.Settle()
	want := []string{".git/hooks", ".mcp.json", ".vscode", "deep/er/.claude", "shut/.envrc"}
	if err != nil || !slices.Equal(got.Moved, want) || len(got.Unseen) > 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, name := range want {
		if _, err := os.Lstat(filepath.Join(project, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
		if _, err := os.Lstat(filepath.Join(got.Dir, name)); err != nil {
			t.Error(err)
		}
	}
	if to, err := os.Readlink(filepath.Join(got.Dir, ".vscode")); err != nil || to != outside {
		t.Error(to, err)
	}
	for _, name := range []string{filepath.Join(outside, "precious"), filepath.Join(project, ".envrc"), filepath.Join(project, "other"), got.Dir + ".json"} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(got.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
	if _, err := os.Stat(home); err == nil {
		t.Error("a home that is not kept is kept")
	}
	if lines := got.Words(project); len(lines) != len(want) || !strings.Contains(lines[0], "mv -n '"+got.Dir) {
		t.Errorf("%q", lines)
	}
}

// TestReplacedFromOutside checks that every change of a guarded file is reported. If it is replaced from outside, its
// mount disappears.
func TestReplacedFromOutside(t *testing.T) {
	project, s := t.TempDir(), State(filepath.Join(t.TempDir(), "state"))
	put(t, project, ".git/HEAD", ".git/config", ".git/hooks/a", ".git/hooks/b", ".envrc", ".vscode/tasks.json")
	os.Symlink("/etc", filepath.Join(project, ".vscode", "link"))
	r, _ := begin(t, s, project, false)
	put(t, project, "new")
	os.Rename(filepath.Join(project, "new"), filepath.Join(project, ".git/config"))
	os.Chmod(filepath.Join(project, ".git/hooks/a"), 0o755) // makes the hook effective
	os.Chtimes(filepath.Join(project, ".envrc"), time.Now(), time.Now())
	os.Remove(filepath.Join(project, ".vscode", "link"))
	os.Symlink("/", filepath.Join(project, ".vscode", "link"))
	got, err := r.Settle()
	if want := []string{".git/config", ".git/hooks", ".vscode"}; err != nil || !slices.Equal(got.Changed, want) || len(got.Moved) > 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	if lines := got.Words(project); len(lines) != 3 || !strings.Contains(lines[0], ".git/config was replaced") {
		t.Errorf("%q", lines)
	}
}

// TestKilledRunIsFound checks that the next run settles a killed run, and that a run in progress is left alone.
func TestKilledRunIsFound(t *testing.T) {
	project, s := t.TempDir(), State(filepath.Join(t.TempDir(), "state"))
	r, _ := begin(t, s, project, false)
	if list, err := s.Left(project); err != nil || len(list) > 0 {
		t.Fatal("a run under way was taken:", list, err)
	}
	put(t, project, ".envrc")
	r.lock.Close() // as if the process was killed
	if list, err := s.Left(project + "-other"); err != nil || len(list) > 0 {
		t.Error("another project's:", list, err)
	}
	list, err := s.Left(project)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if got, err := list[0].Settle(); err != nil || !slices.Equal(got.Moved, []string{".envrc"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if list, err := s.Left(""); err != nil || len(list) > 0 {
		t.Error("it is found again:", list, err)
	}
}

// TestKeptHome checks that all agents of one project share a home, and that each project has its own.
func TestKeptHome(t *testing.T) {
	s, one, two := State(filepath.Join(t.TempDir(), "state")), t.TempDir(), t.TempDir()
	homes := map[string]bool{}
	for _, project := range []string{one, one, two} {
		r, home := begin(t, s, project, true)
		if _, err := r.Settle(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(home); err != nil {
			t.Error(err)
		}
		homes[home] = true
	}
	if len(homes) != 2 {
		t.Error(homes)
	}
}

// TestFurnishFollowsNothing checks that Furnish writes nothing through a link that an agent left in its home.
func TestFurnishFollowsNothing(t *testing.T) {
	home, outside := t.TempDir(), t.TempDir()
	os.Symlink(filepath.Join(outside, "file"), filepath.Join(home, ".gitconfig"))
	os.WriteFile(filepath.Join(home, ".claude.json"), []byte("mine"), 0o600)
	if err := Furnish(home, map[string]string{".gitconfig": "x", ".claude.json": "x", ".codex/config.toml": "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(outside, "file")); err == nil {
		t.Error("it wrote through a link")
	}
	if b, _ := os.ReadFile(filepath.Join(home, ".claude.json")); string(b) != "mine" {
		t.Errorf("%q", b)
	}
	os.RemoveAll(filepath.Join(home, ".codex"))
	os.Symlink(outside, filepath.Join(home, ".codex"))
	if err := Furnish(home, map[string]string{".codex/new": "x"}); err == nil {
		t.Error("it went through a link")
	}
}

// TestTrees checks that the cage shows exactly an installation, wherever it lies, and no more of a home.
func TestTrees(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "v22/lib/node_modules/@x/agent/cli.js", "v22/bin/node", ".local/share/agent/1.0")
	os.WriteFile(filepath.Join(dir, "v22/lib/node_modules/@x/agent/cli.js"), []byte("#!/usr/bin/env node\n"), 0o755)
	os.Symlink("../lib/node_modules/@x/agent/cli.js", filepath.Join(dir, "v22/bin/agent"))
	os.MkdirAll(filepath.Join(dir, ".local/bin"), 0o755)
	os.Symlink("../share/agent/1.0", filepath.Join(dir, ".local/bin/agent"))
	none := func(string) (string, error) { return "", os.ErrNotExist }
	for program, want := range map[string][]string{
		"v22/bin/agent":    {"v22/bin/agent", "v22/lib/node_modules", "v22/bin/node"},
		".local/bin/agent": {".local/bin/agent"},
	} {
		trees, path := Trees("/opt/bailey", filepath.Join(dir, program), "/project", "/usr/local/go/bin:.:"+dir+"/v22/lib:/sbin/../root:/usr/local/go/bin", none)
		if !strings.Contains(path, ":/usr/local/go/bin:"+searched) {
			t.Errorf("the search path: %s", path)
		}
		var got []string
		for _, tree := range trees {
			if name, ok := strings.CutPrefix(tree.Path, dir+"/"); ok {
				got = append(got, name)
			}
			if slices.Contains([]string{"/", "/home", "/root", "/var", "/run", "/etc", dir}, tree.Path) {
				t.Errorf("%s is shown whole", tree.Path)
			}
		}
		if !slices.Equal(got, want) || !strings.HasPrefix(path, Bin+":"+filepath.Join(dir, filepath.Dir(program))+":") {
			t.Errorf("%s: %q %s", program, got, path)
		}
	}
	trees, path := Trees("/opt/bailey", filepath.Join(dir, "v22/bin/agent"), "/project", "/usr/local/go/bin", none, "/home/u/sdk/go1.30")
	if !slices.Contains(trees, bailey.Tree{Path: "/home/u/sdk/go1.30"}) || !strings.Contains(path, "/v22/bin:/home/u/sdk/go1.30/bin:/usr/local/go/bin:") {
		t.Errorf("the toolchain is missing or comes too late: %v %s", trees, path)
	}
}

func TestNames(t *testing.T) {
	for command, want := range map[string]string{"/x/claude": "claude", "sh": "sh", "local": "agent", "a b\"": "a-b", "..": "agent"} {
		if got := Known(command).Name; got != want {
			t.Errorf("%s is %s, want %s", command, got, want)
		}
	}
}
