package agenthook

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/shellparse"
)

// TestAttackRepository checks that a git command asks a person if git would accept its directory, or one above it, as a
// repository although it has no .git. The configuration there can start programs, and may come from a foreign
// repository or be written by the agent.
func TestAttackRepository(t *testing.T) {
	y := newYard(t)
	for _, c := range []struct{ dir, holds string }{{"bare", "HEAD"}, {"linked", "commondir"}, {"soon", "objects refs"}} {
		var made []string
		switch c.holds {
		case "objects refs":
			made = []string{"objects/x", "refs/x"}
		default:
			made = []string{c.holds, "sub/x"}
		}
		for _, name := range made {
			name = filepath.Join(y.dir, c.dir, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte("ref: refs/heads/x\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, line := range []string{"cd " + c.dir + " && git status", "cd " + filepath.Dir(filepath.Join(c.dir, made[1])) + " && git log", "(cd " + c.dir + " && git diff)",
			"sh -c 'cd " + c.dir + " && git show'", "cd " + c.dir + " && /usr/bin/git branch",
			"git -C " + c.dir + " status", "git -C sub -C ../" + c.dir + " log", "git --no-pager -C " + y.dir + "/" + c.dir + " diff"} {
			if v := y.judge("Bash", "command", line); v.Effect != bailey.Ask {
				t.Errorf("%s (%s): %s by %v", line, c.holds, v.Effect, y.ids())
			}
		}
	}
	if err := os.Symlink("bare/sub", y.dir+"/inward"); err != nil {
		t.Fatal(err)
	}
	if v := y.judge("Bash", "command", "cd inward && git status"); v.Effect != bailey.Ask {
		t.Errorf("through a link: %s by %v", v.Effect, y.ids())
	}
	if v := y.judge("Bash", "command", "git -C inward -C . status"); v.Effect != bailey.Ask {
		t.Errorf("through a link by -C: %s by %v", v.Effect, y.ids())
	}
	for _, line := range []string{"git -C " + filepath.Dir(y.dir) + " status", "git -C sub -C ../.. status", "git -C out status"} {
		if v := y.judge("Bash", "command", line); v.Effect == bailey.Allow {
			t.Errorf("%s leaves the workspace: %s by %v", line, v.Effect, y.ids())
		}
	}
	for _, line := range []string{"git status", "cd sub && git log", "git -C sub log", "git -C sub -C .. status"} {
		if v := y.judge("Bash", "command", line); v.Effect != bailey.Allow {
			t.Errorf("%s: %s %s", line, v.Effect, v.Reason)
		}
	}
}

// TestAttackWords checks that no command is allowed if the program would read its arguments differently from the
// pattern. A reading command must not lead outside.
func TestAttackWords(t *testing.T) {
	y := newYard(t)
	for _, line := range []string{
		"grep --color root /etc/passwd", "ls --color /etc", "ls --color " + y.Home, // takes a value only after =
		"grep -R x .", "grep -nR x", "tools/nice cat x", "./sh -c 'cat x'", "! cd nosuch && cat x",
	} {
		if v := y.judge("Bash", "command", line); v.Effect == bailey.Allow {
			t.Errorf("%s is allowed by %v", line, y.ids())
		}
	}
	if v := y.judge("Bash", "command", "ls --color=never sub"); v.Effect != bailey.Allow {
		t.Errorf("%s %s", v.Effect, v.Reason)
	}
}

// TestAttackSpelling checks that a path is read as the agent's own tools read it: they trim blanks and expand ~, and
// nothing else.
func TestAttackSpelling(t *testing.T) {
	y := newYard(t)
	for _, c := range []struct{ tool, key string }{{"Read", "file_path"}, {"Write", "file_path"}, {"NotebookEdit", "notebook_path"}, {"LS", "path"}, {"Grep", "path"}, {"Glob", "path"}, {"Glob", "pattern"}} {
		for _, path := range []string{"~", "~/x", "~/.ssh/id", " /etc/passwd", "\t~/x", "\u00a0/etc/x", "\ufeff/etc/x", " x", "x ", "x\n", "\u2028x", "~\x00"} {
			if v := y.judge(c.tool, c.key, path); v.Effect != bailey.Deny {
				t.Errorf("%s %s %q: %s by %v", c.tool, c.key, path, v.Effect, y.asked)
			}
		}
	}
	for _, c := range [][3]string{{"Read", "file_path", "a b~"}, {"Grep", "pattern", " ~/x "}} {
		if v := y.judge(c[0], c[1], c[2]); v.Effect != bailey.Allow {
			t.Errorf("%v: %s %s", c, v.Effect, v.Reason)
		}
	}
}

// TestAttackLetters checks that rules see the canonical spelling of a name such as .GIT on every file system, and that
// input.acts names the program that acts on the file.
func TestAttackLetters(t *testing.T) {
	for path, want := range map[string]string{
		"/w/.GIT/Hooks/x": "/w/.git/Hooks/x", "/w/.Mcp.JSON": "/w/.mcp.json", "/w/sub/head": "/w/sub/head", "/w/.git./config": "/w/.git/config",
		"/w/.ENVRC ": "/w/.envrc", "/w/.cl\u200daude/x": "/w/.claude/x", "/w/agents.md": "/w/agents.md",
	} {
		in := writeInput(filepath.FromSlash(path))
		if got := filepath.ToSlash(in["path"].(string)); got != want || in["acts"] == nil {
			t.Errorf("%s: %v, want %s", path, in, want)
		}
	}
	for _, path := range []string{"/w/.gitignore", "/", "/w/claude/x", "/w/hooks/x", "/w/config/x", "/w/src/main.go"} {
		if in := writeInput(filepath.FromSlash(path)); filepath.ToSlash(in["path"].(string)) != path || in["acts"] != nil {
			t.Errorf("%s: %v", path, in)
		}
	}
}

// TestAttackGitElsewhere checks that a git directory is recognised as git finds it, through any link and with any name.
func TestAttackGitElsewhere(t *testing.T) {
	y := newYard(t)
	for dir, files := range map[string][]string{
		"tree":                 {".git"}, // a file: gitdir: ../.bare/worktrees/tree
		".bare":                {"HEAD", "config", "objects/x", "refs/x", "hooks/x"},
		".bare/worktrees/tree": {"HEAD", "commondir"},
		".repo/projects/a.git": {"HEAD", "objects/x", "refs/x"},
		"halfway":              {"objects/x", "refs/x"},
		"src/hooks":            {"use-state.ts"},
		"deploy/config":        {"prod.yaml"},
	} {
		for _, f := range files {
			name := filepath.Join(y.dir, dir, f)
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte("x"), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for link, to := range map[string]string{"l": ".bare", "linked/.git": "../.bare"} {
		name := filepath.Join(y.dir, link)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(to, name)); err != nil {
			t.Fatal(err)
		}
	}
	said := func(tool, key, value string) (acts any) {
		y.asked = nil
		y.judge(tool, key, value)
		for _, c := range y.asked {
			if c.Capability == "file.edit" || c.Capability == "file.write" {
				acts = c.Input["acts"]
			}
		}
		return acts
	}
	for _, path := range []string{".bare/config", ".bare/hooks/pre-commit", ".bare/worktrees/tree/config.worktree", ".bare/HEAD", "l/config", "linked/.git/hooks/x", "tree/.git", "l/Hooks/x",
		".repo/projects/a.git/config", ".repo/projects/a.git/hooks/x", "halfway/config", "halfway/HEAD"} {
		for _, c := range [][2]string{{"Edit", path}, {"Write", path}} {
			if by := said(c[0], "file_path", filepath.Join(y.dir, c[1])); by != actsGit {
				t.Errorf("%s %s: %v", c[0], path, by)
			}
		}
		if by := said("Bash", "command", "echo x > "+path); by != actsGit {
			t.Errorf("echo > %s: %v", path, by)
		}
	}
	for _, path := range []string{"src/hooks/use-state.ts", "deploy/config/prod.yaml", "src/config", "config", "hooks/x"} {
		if by := said("Write", "file_path", filepath.Join(y.dir, path)); by != nil {
			t.Errorf("%s: %v", path, by)
		}
	}
}

// TestAttackGitOperands checks that an operand of git that can be opened as a path is decided as a path: outside a
// repository, and after a colon, where it is relative to the top of the repository.
func TestAttackGitOperands(t *testing.T) {
	y := newYard(t)
	outside := filepath.Dir(y.dir)
	for name, text := range map[string]string{filepath.Join(outside, "secret"): "x", filepath.Join(outside, "plain/in/a/b"): "x", filepath.Join(outside, "big/.git/HEAD"): "x", filepath.Join(outside, "big/w/x"): "x"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	reads := func(dir, line string) (paths []string) {
		all, err := shellparse.Parse(line, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range (Config{Catalog: y.Catalog}).translateCommand(all[0], dir) {
			if p.id == read && p.about == "git would read it" {
				paths = append(paths, strings.TrimPrefix(p.input["path"].(string), outside+"/"))
			}
		}
		return paths
	}
	plain, below := filepath.Join(outside, "plain/in"), filepath.Join(outside, "big/w")
	for _, c := range []struct{ dir, line, want string }{
		{plain, "git diff a/../../../secret -- a/b", "secret"}, {plain, "git diff --no-index ../../secret a/b", "secret"}, {plain, "git diff a/b " + outside + "/secret", "secret"}, {plain, "git diff a/b", ""},
		{below, "git show HEAD:other/dir", "big/other/dir"}, {below, "git show HEAD:w/x", ""}, {below, "git show HEAD:./x", ""}, {below, "git show HEAD:../y", "big/y"}, {below, "git diff main:a feature:w/b", "big/a"},
		{below, "git log -- ':(top)x'", "big"}, {below, "git show :other", "big/other"}, {below, "git status", ""}, {below, "git commit -m 'fix: this and that'", ""}, {below, "git log main..feature", ""},
		{below, "git -C . show HEAD:other", "big/other"}, {plain, "git -C ../../big/w show HEAD:other", "big/other"}, {plain, "git -C ../../big -C w diff ../../secret a", "secret"},
	} {
		if got := strings.Join(reads(c.dir, c.line), " "); got != c.want {
			t.Errorf("%s in %s reads %q, want %q", c.line, c.dir, got, c.want)
		}
	}
}

// TestAttackLength checks that a path that is too long for any system is refused without resolving it part by part.
func TestAttackLength(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	long := strings.Repeat("a/", 30<<10)
	begun := time.Now()
	for _, c := range [][3]string{{"Bash", "command", "cat " + long}, {"Bash", "command", "$x " + long}, {"Bash", "command", "true > " + long}, {"Bash", "command", "cd " + long + " && git status"},
		{"Bash", "command", "cd " + long[:4000] + " && cd " + long[:4000] + " && cat x"}, {"Read", "file_path", long}, {"Glob", "pattern", long + "*"}} {
		if v := y.judge(c[0], c[1], c[2]); v.Effect == bailey.Allow {
			t.Errorf("%s %.20s is allowed", c[0], c[2])
		}
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("they took %v", took)
	}
}
