package packs_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/guard"
	"bailey/internal/ktest"
	"bailey/pack"
	"bailey/packs/hostile"
)

// TestGitAddsAndSwitches checks that added files are committed, that a branch can be created, and that switching
// overwrites no uncommitted change.
func TestGitAddsAndSwitches(t *testing.T) {
	src, _, git := repositories(t)
	do := func(id bailey.CapabilityID, input map[string]any) string {
		input["repo"] = src
		j := job(t, id, input, map[string]string{"repo": src})
		return run(t, j.Dir, false, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, j.Env...), j.Command, j.Args...)
	}
	os.WriteFile(filepath.Join(src, "new"), []byte("new\n"), 0o644)
	do("git.add", map[string]any{"paths": []any{"new"}})
	if got := git(src, "diff", "--cached", "--name-only"); got != "new" {
		t.Errorf("the index has %q", got)
	}
	do("git.switch", map[string]any{"branch": "side", "create": true})
	if got := git(src, "branch", "--show-current"); got != "side" {
		t.Errorf("on %q", got)
	}
	do("git.commit", map[string]any{"message": "new"})
	os.WriteFile(filepath.Join(src, "new"), []byte("mine\n"), 0o644)
	out := do("git.switch", map[string]any{"branch": "main"})
	if b, _ := os.ReadFile(filepath.Join(src, "new")); string(b) != "mine\n" || git(src, "branch", "--show-current") != "side" {
		t.Errorf("what was not committed is gone: %s", out)
	}
}

// TestHostileAdds checks that a repository cannot make git.add or git.switch run a program.
func TestHostileAdds(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "git", "sh")
	for _, r := range slices.Concat(hostile.Commits(t, t.TempDir()), hostile.Repositories(t, t.TempDir())) {
		if r.Wall != hostile.Options { // only the cage stops these: TestHostileRepositories
			continue
		}
		t.Run(strings.ReplaceAll(r.Key, "/", "|"), func(t *testing.T) {
			t.Parallel()
			env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C", "TERM=xterm"}
			for id, input := range map[bailey.CapabilityID]map[string]any{
				"git.add": {"paths": []any{"."}}, "git.switch": {"branch": "another", "create": true},
			} {
				input["repo"] = r.Dir
				j := job(t, id, input, map[string]string{"repo": r.Dir})
				r.Arm()
				if out := run(t, j.Dir, r.TTY, append(env, j.Env...), j.Command, j.Args...); worked(r, out) {
					t.Errorf("%s: it got through:\n%s", id, out)
				}
			}
		})
	}
}

// everydayCalls are calls of capabilities that people use less often, each with an input that makes git do its work.
var everydayCalls = []struct {
	id    bailey.CapabilityID
	input map[string]any
}{
	{"git.diff-tree", map[string]any{"diff": []any{"-p"}, "more": []any{"--root"}, "revs": []any{"HEAD"}}},
	{"git.diff-index", map[string]any{"diff": []any{"-p"}, "revs": []any{"HEAD"}}},
	{"git.diff-worktree", map[string]any{"diff": []any{"-p"}}},
	{"git.annotate", map[string]any{"words": []any{"file"}}},
	{"git.whatchanged", map[string]any{"diff": []any{"-p"}}},
	{"git.show-branch", map[string]any{"options": []any{"--all"}}},
	{"git.check-attr", map[string]any{"all": true, "words": []any{"file"}}},
	{"git.check-ref-format", map[string]any{"branch": true, "name": "@{-1}"}},
	{"git.hash-object", map[string]any{"files": []any{"file"}}},
	{"git.symbolic-ref", map[string]any{"name": "HEAD"}},
	{"git.fsck", nil},
	{"git.notes-list", nil},
	{"git.notes-show", nil},
	{"git.sparse-list", nil},
	{"git.rerere", map[string]any{"verb": "diff"}},
	{"git.config-match", map[string]any{"expression": "^branch"}},
	{"git.config-person", map[string]any{"key": "user.name"}},
	{"git.submodule-status", map[string]any{"recursive": true}},
	{"git.help", nil},
	{"git.index-refresh", nil},
	{"git.commit-preview", map[string]any{"all": true}},
	{"git.add-matching", map[string]any{"paths": []any{"*"}}},
	{"git.commit-from", map[string]any{"reuse": "HEAD", "all": true, "options": []any{"--allow-empty"}}},
	{"git.notes-add", map[string]any{"verb": "add", "message": []any{"x"}}},
	{"git.notes-replace", map[string]any{"message": []any{"y"}, "force": true}},
	{"git.notes-remove", nil},
	{"git.reset-files", map[string]any{"paths": []any{"file"}}},
	{"git.merge-tree", map[string]any{"revs": []any{"HEAD", "HEAD"}}},
	{"git.archive", map[string]any{"output": "out.tar", "tree": "HEAD"}},
	{"git.archive", map[string]any{"output": "out.tar.gz", "tree": "HEAD"}},
	{"git.bundle-create", map[string]any{"file": "x.bundle", "options": []any{"--all"}}},
	{"git.bundle-verify", map[string]any{"verb": "verify", "file": "x.bundle"}},
	{"git.gc", map[string]any{"auto": true}},
	{"git.gc", nil},
	{"git.gc-prune", map[string]any{"expire": "now"}},
	{"git.repack", map[string]any{"options": []any{"-a", "-d"}}},
	{"git.prune", nil},
	{"git.pack-refs", map[string]any{"all": true}},
	{"git.commit-graph", map[string]any{"options": []any{"--reachable"}}},
	{"git.reflog-expire", map[string]any{"verb": "expire", "options": []any{"--expire=now", "--all"}}},
	{"git.branch-copy", map[string]any{"branch": "main", "name": "copied"}},
	{"git.branch-track", map[string]any{"upstream": "main", "branch": "copied"}},
	{"git.branch-force", map[string]any{"force": true, "branch": "copied", "start": "HEAD"}},
	{"git.tag-replace", map[string]any{"tag": "t", "annotate": true, "message": "x"}},
	{"git.update-ref", map[string]any{"ref": "refs/heads/other", "to": "HEAD"}},
	{"git.hash-object-write", map[string]any{"files": []any{"file"}}},
	{"git.index-mark", map[string]any{"options": []any{"--chmod=+x"}, "paths": []any{"file"}}},
	{"git.sparse-set", map[string]any{"verb": "set", "options": []any{"--cone"}, "paths": []any{"nothing"}}},
	{"git.sparse-set", map[string]any{"verb": "disable"}},
	{"git.stash", map[string]any{"all": true}},
	{"git.stash-branch", map[string]any{"branch": "aside"}},
	{"git.submodule-init", nil},
	{"git.submodule-sync", nil},
	{"git.submodule-update", map[string]any{"options": []any{"--init", "--recursive"}}},
	{"git.am", map[string]any{"patches": []any{"file"}}},
	{"git.am-abort", nil},
	{"git.reset-merge", map[string]any{"merge": true}},
	{"git.checkout", map[string]any{"branch": "HEAD", "detach": true}},
	{"git.switch-to", map[string]any{"back": "-"}},
	{"git.checkout-orphan", map[string]any{"orphan": "pages"}},
	{"git.switch-orphan", map[string]any{"orphan": "empty"}},
	{"git.submodule-deinit", map[string]any{"all": true, "force": true}},
}

// TestHostileEveryday checks that a repository cannot make the calls that people use less often run a program. Attacks that
// only the cage stops are TestHostileRepositories, and TestGitEveryday for git bisect.
func TestHostileEveryday(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "git", "sh")
	for _, r := range slices.Concat(hostile.Commits(t, t.TempDir()), hostile.Repositories(t, t.TempDir())) {
		if r.Wall != hostile.Options {
			continue
		}
		t.Run(strings.ReplaceAll(r.Key, "/", "|"), func(t *testing.T) {
			t.Parallel()
			env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C", "TERM=xterm"}
			for _, c := range everydayCalls {
				input := map[string]any{"repo": r.Dir}
				maps.Copy(input, c.input)
				j := job(t, c.id, input, map[string]string{"repo": r.Dir})
				r.Arm()
				if out := run(t, j.Dir, r.TTY, append(env, j.Env...), j.Command, j.Args...); worked(r, out) {
					t.Fatalf("%s %v: it got through:\n%s", c.id, c.input, out)
				}
			}
		})
	}
}

// TestRemotesAreNamed checks that a remote repository must be an https address given in the call.
func TestRemotesAreNamed(t *testing.T) {
	for _, id := range []bailey.CapabilityID{"git.clone", "git.ls-remote"} {
		m, err := catalog(t).Lookup(id)
		if err != nil {
			t.Fatal(err)
		}
		input := func(url string) map[string]any {
			in := map[string]any{"url": url, "name": "copy", "into": "/w"}
			if id == "git.ls-remote" {
				in = map[string]any{"url": url}
			}
			return in
		}
		clean, err := m.Check(input("https://git.example.com/a/b.git"), true)
		if err != nil {
			t.Fatal(err)
		}
		if places, err := m.Egress(clean); err != nil || !slices.Equal(places, []string{"git.example.com:443"}) {
			t.Errorf("%s reaches %q, %v", id, places, err)
		}
		for _, url := range []string{"http://a.example/x", "ssh://a.example/x", "ext::sh -c x", "file:///etc", "git://a.example/x", "https://u:p@a.example/x", "/etc", "--upload-pack=x", "https://a.example/x?y", "https::https://a.example/x"} {
			if clean, err := m.Check(input(url), true); err == nil {
				if _, err := m.Egress(clean); err == nil {
					t.Errorf("%s takes %s", id, url)
				}
			}
		}
	}
}

// TestBuildersWaive checks that among the built-in packs only those that build have a weaker cage, and that their
// capabilities that reach a registry run no code of the project.
func TestBuildersWaive(t *testing.T) {
	for _, m := range catalog(t).All() {
		builds := slices.Contains([]string{"go", "make", "npm", "pnpm", "yarn", "pip", "cargo", "python", "uv"}, m.Pack)
		reaches, waives := len(m.Reaches()) > 0, slices.Equal(m.Waivers(), []string{pack.FSExec})
		if m.Pack == "git" || strings.HasPrefix(string(m.ID), "go.gofmt") { // of git, a few capabilities run what the caller names
			if waives && (reaches || !m.CagedLines() || m.SideEffect.Rank() < pack.Mutating.Rank() || m.Pack != "git") {
				t.Errorf("%s waives %q", m.ID, m.Waivers())
			}
			continue
		}
		if m.Pack == "terraform" { // its other capabilities execute Terraform alone, without a network
			builds = waives || reaches
		}
		if waives != (builds && !reaches) {
			t.Errorf("%s waives %q", m.ID, m.Waivers())
		}
		if !builds {
			continue
		}
		j := m.Job(nil, []bailey.Place{{Input: "dir", Path: "/w"}})
		if reaches && (j.Wall.Run || len(j.Wall.Trees) > 0 || m.Loopback()) || j.Wall.Fetches != reaches {
			t.Errorf("%s reaches %q and runs what the project has: %+v", m.ID, m.Reaches(), j.Wall)
		}
		// these override .cargo/config.toml
		for _, v := range []string{"RUSTC=rustc", "RUSTC_WRAPPER=", "RUSTC_WORKSPACE_WRAPPER="} {
			if m.Pack == "cargo" && len(m.Reaches()) > 0 && !slices.Contains(j.Env, v) {
				t.Errorf("%s runs as a compiler what the project names: no %s in %q", m.ID, v, j.Env)
			}
		}
		if j.Wall.Unix || j.Wall.Pty || j.Wall.Cache != m.Pack || j.Dir != "/w" || m.SideEffect.Rank() < pack.Mutating.Rank() {
			t.Errorf("%s: %s, %+v", m.ID, m.SideEffect, j.Wall)
		}
	}
}

// TestAttackCloneName checks that a clone cannot create a directory whose name has a meaning for git or for a program
// outside the cage.
func TestAttackCloneName(t *testing.T) {
	names := []string{"hooks", "HOOKS", "config", "config.worktree", "commondir", "HEAD", "objects", "refs", "modules", "worktrees"}
	for _, e := range guard.All() {
		if e.Dir == "" {
			names = append(names, strings.ReplaceAll(e.Spelt, "*", "x"), strings.ToUpper(strings.ReplaceAll(e.Spelt, "*", "x"))+".")
		}
	}
	for id, input := range map[bailey.CapabilityID]map[string]any{"git.clone": {"url": "https://git.example.org/a/b.git", "into": "/w"}, "gh.clone": {"repo": "a/b", "into": "/w"}} {
		m, err := catalog(t).Lookup(id)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			input["name"] = name
			if _, err := m.Check(input, true); bailey.KindOf(err) != bailey.Invalid {
				t.Errorf("%s makes %s: %v", id, name, err)
			}
		}
		for _, name := range []string{"shop", "config-server", "hooks.js", "claude-code", "b.git"} {
			input["name"] = name
			if _, err := m.Check(input, true); err != nil {
				t.Errorf("%s does not make %s: %v", id, name, err)
			}
		}
	}
}
