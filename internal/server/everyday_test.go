package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/packstore"
)

// TestGitEveryday makes the calls that people use less often through the complete gate, in the full cage: they must find the
// programs and the files that they need there, and do their work.
func TestGitEveryday(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns", "netns", "git", "sh")
	catalog, err := packstore.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "gitconfig")
	ktest.Write(t, config, "[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = trunk\n")
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	s, yard := yardOf(t, catalog, `
@id("everyday")
permit (principal, action in Action::"pack:git", resource == Target::"local")
when { context.cage == "full" && ["fs.exec"].containsAll(context.waivers) };`)
	repo := filepath.Join(yard, "repo")
	plain(t, yard, "init", "-q", "-b", "main", repo)
	for _, text := range []string{"one\n", "two\n", "three\n", "four\n"} {
		ktest.Write(t, filepath.Join(repo, "file"), text)
		plain(t, repo, "add", "-A")
		plain(t, repo, "commit", "-qm", strings.TrimSpace(text))
	}
	ktest.Write(t, filepath.Join(repo, "four.patch"), plain(t, repo, "format-patch", "-1", "--stdout")+"\n")
	plain(t, repo, "reset", "-q", "--hard", "HEAD~1")
	hook := filepath.Join(repo, ".git/hooks/reference-transaction")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho hostile-hook-ran >&2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id    bailey.CapabilityID
		input map[string]any
		want  string // in the output; with ! before it, not there
	}{
		{"git.diff-index", map[string]any{"diff": []any{"--quiet"}, "revs": []any{"HEAD"}}, ""},
		{"git.diff-worktree", map[string]any{"diff": []any{"--name-only"}}, "!file"},
		{"git.index-refresh", nil, "!needs update"},
		{"git.fsck", nil, ""},
		{"git.hash-object", map[string]any{"files": []any{"file"}}, plain(t, repo, "rev-parse", "HEAD:file")},
		{"git.notes-add", map[string]any{"verb": "add", "message": []any{"seen"}}, ""},
		{"git.notes-show", nil, "seen"},
		{"git.gc", nil, ""},
		{"git.archive", map[string]any{"output": "out.tar.gz", "tree": "HEAD"}, ""},
		{"git.bundle-create", map[string]any{"file": "x.bundle", "options": []any{"--all"}}, ""},
		{"git.bundle-verify", map[string]any{"verb": "verify", "file": "x.bundle"}, ""},
		{"git.am", map[string]any{"patches": []any{"four.patch"}}, "Applying: four"},
		{"git.checkout", map[string]any{"branch": "HEAD~1"}, ""},
		{"git.switch-to", map[string]any{"back": "-"}, ""},
		{"git.bisect", map[string]any{"verb": "start", "words": []any{"HEAD", "HEAD~3"}}, "Bisecting"},
		{"git.bisect-run", map[string]any{"command": []any{"grep", "-q", "-e", "one", "-e", "two", "file"}}, "is the first bad commit"},
		{"git.bisect", map[string]any{"verb": "reset"}, ""},
		{"git.rebase-exec", map[string]any{"command": []any{"touch ran"}, "revs": []any{"HEAD~1"}, "options": []any{"--force-rebase"}}, ""},
		{"git.submodule-status", nil, ""},
		{"git.submodule-foreach", map[string]any{"command": []any{"true"}}, ""},
		{"git.commit-preview", map[string]any{"options": []any{"--allow-empty", "--untracked-files=no"}}, ""},
		{"git.config-person", map[string]any{"key": "user.name"}, "Ada"},
		{"git.config-get", map[string]any{"key": "user.email"}, "ada@example.org"},
		{"git.config-get", map[string]any{"key": "core.bare"}, "false"},
		{"git.init", map[string]any{"into": yard, "name": "fresh"}, "Initialized"},
	} {
		input := map[string]any{"repo": repo}
		if c.input["into"] != nil {
			input = map[string]any{}
		}
		for k, v := range c.input {
			input[k] = v
		}
		res := try(t, s, c.id, repo, input)
		out := string(res.Stdout) + string(res.Stderr)
		if strings.Contains(out, "hostile-hook-ran") && c.id != "git.bisect-run" { // which runs what the project has
			t.Errorf("%s %v runs a hook:\n%s", c.id, c.input, out)
		}
		word, not := strings.CutPrefix(c.want, "!")
		if mayFail := c.id == "git.commit-preview"; res.Status != bailey.OK && !mayFail || strings.Contains(out, word) == not {
			t.Errorf("%s %v: %v, want %q\n%s", c.id, c.input, res.Err, c.want, out)
		}
	}
	// It can remove ignored files, so only a rule that names it allows it.
	res := try(t, s, "git.sparse-set", repo, map[string]any{"repo": repo, "verb": "init", "options": []any{"--cone"}})
	if res.Status == bailey.OK || res.Err == nil || !strings.Contains(res.Err.Error(), "irreversible") {
		t.Errorf("git.sparse-set: %v, %v", res.Status, res.Err)
	}
	for _, name := range []string{"repo/out.tar.gz", "repo/x.bundle", "repo/ran", "fresh/.git/HEAD"} {
		if _, err := os.Stat(filepath.Join(yard, name)); err != nil {
			t.Error(err)
		}
	}
	if head, _ := os.ReadFile(filepath.Join(yard, "fresh/.git/HEAD")); string(head) != "ref: refs/heads/trunk\n" {
		t.Errorf("the first branch is not the person's: %s", head)
	}
	if _, err := os.Stat(hook); err != nil {
		t.Error(err)
	}
	owned(t, repo)
}
