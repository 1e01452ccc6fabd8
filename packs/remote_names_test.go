package packs_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/workspace"
	"bailey/pack"
	"bailey/packs/hostile"
)

// TestHostileRemotes checks that each attack on the name of a remote works against plain git, and that the gate refuses
// the configuration, with a cure, before git runs.
func TestHostileRemotes(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "git", "sh")
	for _, r := range hostile.Remotes(t, t.TempDir()) {
		t.Run(strings.ReplaceAll(r.Key, "/", "|"), func(t *testing.T) {
			t.Parallel()
			input := map[string]any{"repo": r.Dir}
			if slices.Contains(r.Control, "origin") {
				input["remote"] = "origin"
			}
			id := bailey.CapabilityID("git.push-remote")
			if r.Control[0] == "fetch" {
				id = "git.fetch-remote"
			}
			place, err := workspace.OpenPlace(r.Dir, false)
			if err != nil {
				t.Fatal(err)
			}
			defer place.File.Close()
			m, err := catalog(t).Lookup(id)
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.ResolveRemote(input, func(below string) ([]byte, bool, error) {
				return new(workspace.Workspaces).Load(place, below, 1<<20)
			})
			if err == nil || bailey.HintOf(err) == "" {
				t.Errorf("it got through: %v, %v", got, err)
			}
			r.Arm()
			out := run(t, r.Dir, false, hostile.Environ(filepath.Dir(r.Dir)), "git", r.Control...)
			if !worked(r, out) {
				t.Errorf("not live: plain git %v shows no effect:\n%q", r.Control, out)
			}
		})
	}
}

// TestHostileConfigList checks that a configuration is shown, and that no program that it names runs.
func TestHostileConfigList(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "git", "sh")
	for _, r := range hostile.Repositories(t, t.TempDir()) {
		for id, input := range map[bailey.CapabilityID]map[string]any{
			"git.config-list": {}, "git.config-get": {"key": "core.pager", "options": []any{"--show-origin"}},
		} {
			input["repo"] = r.Dir
			j := job(t, id, input, map[string]string{"repo": r.Dir})
			env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C", "TERM=xterm"}, j.Env...)
			r.Arm()
			out := run(t, j.Dir, r.TTY, env, j.Command, j.Args...)
			if _, err := os.Lstat(r.Marker); err == nil {
				t.Errorf("%s, %s: a program ran\n%s", r.Key, id, out)
			}
		}
	}
}

// TestRemoteClasses checks the class of lines that reach a remote: what can lose something there is destructive.
func TestRemoteClasses(t *testing.T) {
	for line, want := range map[string]pack.SideEffect{
		"git push": pack.Mutating, "git push -u origin main": pack.Mutating, "git push origin main:release --follow-tags": pack.Mutating,
		"git push -n": pack.Mutating, "git push theirs tag v1": pack.Mutating,
		"git push -f": pack.Destructive, "git push --force-with-lease=main:abc origin main": pack.Destructive,
		"git push origin -d a b": pack.Destructive, "git push origin +main": pack.Destructive, "git push origin main +side:side": pack.Destructive,
		"git push origin :a": pack.Destructive, "git push --prune origin": pack.Destructive, "git push --mirror": pack.Destructive,
		"git push --tags --force": pack.Destructive, "git push --force-if-includes --force-with-lease": pack.Destructive,
		"git fetch": pack.Mutating, "git fetch origin --tags": pack.Mutating, "git fetch --all": pack.Mutating,
		"git fetch -p origin main:topic": pack.Mutating, "git fetch origin refs/tags/v1:refs/tags/v1": pack.Mutating,
		"git fetch origin refs/heads/*:refs/remotes/origin/*": pack.Mutating,
		"git switch -C topic origin/main":                     pack.Destructive, "git checkout -B topic": pack.Destructive,
		"git pull --ff-only": pack.Mutating, "git pull --no-rebase -X theirs origin main": pack.Mutating,
		"git ls-remote origin": pack.ReadOnly, "git remote show origin": pack.ReadOnly, "git remote prune origin": pack.Mutating,
		"git remote update": pack.Mutating, "git remote remove x": pack.Destructive, "git remote add x https://git.example.org/x": pack.Mutating,
		"git config user.name": pack.ReadOnly, "git config user.name x": pack.Mutating, "git worktree remove x": pack.Destructive,
		"git submodule update --init": pack.Mutating, "git submodule foreach x": pack.Mutating, "git bisect run x -y": pack.Mutating,
		"git rebase -x make main": pack.Mutating, "git clone git@github.com:a/b.git": pack.Mutating, "git init": pack.Additive,
		"git branch -M main": pack.Destructive, "git branch -f main HEAD": pack.Destructive, "git tag -f v1": pack.Destructive,
		"git gc --prune=now": pack.Destructive, "git gc": pack.Mutating, "git update-ref -d refs/heads/x": pack.Destructive,
		"git checkout HEAD~1 Makefile": pack.Destructive, "git checkout HEAD~1": pack.Mutating, "git reset HEAD Makefile": pack.Mutating,
		"git reset --keep HEAD~1": pack.Destructive, "git reflog expire --all": pack.Destructive, "git mv -f a b": pack.Destructive,
	} {
		found := pack.Meanings(catalog(t).All(), strings.Fields(line))
		if len(found) != 1 || len(found[0].Inputs) != 1 {
			t.Errorf("%s has %d meanings", line, len(found))
			continue
		}
		if _, err := found[0].Check(found[0].Inputs[0], true); err != nil || found[0].SideEffect != want {
			t.Errorf("%s is %s, want %s; %v", line, found[0].SideEffect, want, err)
		}
	}
	for _, line := range []string{
		"git push --receive-pack=x", "git push --exec=x origin", "git push --signed", "git push --recurse-submodules=on-demand",
		"git push --repo=/x", "git fetch --upload-pack x origin", "git fetch -f origin main", "git fetch origin +a:b",
		"git fetch -p origin refs/heads/*:refs/heads/*", "git fetch origin refs/tags/*:refs/tags/*", "git fetch -p origin main:refs/heads/topic",
		"git fetch origin heads/*:mine/*", "git fetch origin a:refs/tags/a", "git config fetch.pruneTags true",
		"git fetch --recurse-submodules", "git fetch --server-option=x", "git fetch --multiple a b", "git fetch --stdin",
		"git pull -s evil", "git pull --rebase=i", "git pull -e", "git pull -Seve", "git pull --gpg-sign=eve", "git pull origin a:b", "git pull --all",
		"git -c core.sshCommand=x pull", "git ls-remote --upload-pack=x origin", "git ls-remote -o x origin", "git ls-remote --server-option=x origin",
		"git config core.sshCommand x", "git config --global user.name x", "git config --file=x user.name", "git config -e",
		"git config remote.origin.url x", "git config --replace-all user.name x", "git config --add user.name x", "git config --blob x user.name",
		"git remote add x ext::x", "git remote add -f x https://git.example.org/x", "git remote add --mirror=fetch x https://git.example.org/x",
		"git remote set-url --delete origin x", "git worktree add -f x", "git worktree add ../x", "git submodule update --reference=/x", "git remote set-head origin",
	} {
		for _, m := range pack.Meanings(catalog(t).All(), strings.Fields(line)) {
			if _, err := m.Check(m.Inputs[0], true); err == nil {
				t.Errorf("%s is %s", line, m.ID)
			}
		}
	}
}

// TestPushRemoteShows checks that the preview of a push to a remote names HEAD, the commits that the remote is not known
// to have, and all refs, and that it changes with any of them.
func TestPushRemoteShows(t *testing.T) {
	src, _, git := repositories(t)
	one := git(src, "rev-parse", "HEAD")
	git(src, "update-ref", "refs/remotes/origin/main", one)
	two := commit(t, git, src, "two is\x1b[31m red")
	show := func(id bailey.CapabilityID) string {
		input := map[string]any{"repo": src, "remote": "origin", "force": true}
		if id == "git.push-remote" {
			delete(input, "force")
		}
		return foreseen(t, false, looksOf(t, id, input, map[string]string{"repo": src}))
	}
	first := show("git.push-remote")
	for _, want := range []string{two + "\n", "adds " + two, "author Ada <ada@example.org>", "two is", "file | 2 +-", two + " refs/heads/main", one + " refs/remotes/origin/main"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is not in\n%s", want, first)
		}
	}
	if strings.Contains(first, "adds "+one) {
		t.Errorf("it shows what is there already:\n%s", first)
	}
	if show("git.push-replace") != first {
		t.Error("a push that overwrites shows something else")
	}
	for _, change := range [][]string{{"tag", "v1"}, {"update-ref", "refs/remotes/origin/main", two}, {"switch", "-q", "--detach", one}} {
		git(src, change...)
		if now := show("git.push-remote"); now == first {
			t.Errorf("after %v it shows what it did", change)
		} else {
			first = now
		}
	}
}
