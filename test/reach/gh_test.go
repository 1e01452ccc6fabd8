//go:build linux

package reach

import (
	"net/http"
	"net/http/cgi"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// TestGhChanges checks that calls of gh that change something reach GitHub from their cages, with the token at the
// hosts of the API alone, and with the files and the standard input of the call.
func TestGhChanges(t *testing.T) {
	ktest.Long(t)
	w := newWorld(t)
	s := w.answering(map[string]string{
		"POST api.github.com/repos/o/r/issues/5/labels":                `[{"name":"bug"}]`,
		"DELETE api.github.com/repos/o/r/labels/x":                     ``,
		"POST api.github.com/gists":                                    `{"html_url":"https://gist.github.com/0123"}`,
		"POST api.github.com/graphql":                                  `{"data":{"repository":{"release":{"databaseId":1,"isDraft":false}}}}`,
		"GET api.github.com/repos/o/r/releases/tags/v1":                `{"id":1,"tag_name":"v1","upload_url":"https://uploads.github.com/repos/o/r/releases/1/assets{?name,label}","assets":[]}`,
		"POST uploads.github.com/repos/o/r/releases/1/assets":          `{"id":2,"name":"notes","state":"uploaded"}`,
		"PATCH api.github.com/repos/o/r":                               `{"name":"r","owner":{"login":"o"}}`,
		"POST api.github.com/repos/o/r/actions/runs/7/rerun":           `{}`,
		"GET api.github.com/repos/o/r/actions/runs/7":                  `{"id":7,"name":"tests","status":"completed","workflow_id":3}`,
		"GET api.github.com/repos/o/r/actions/workflows/3":             `{"id":3,"name":"tests","state":"active"}`,
		"GET api.github.com/repos/o/r/actions/workflows/ci.yml":        `{"id":3,"name":"tests","state":"active","path":"ci.yml"}`,
		"POST api.github.com/repos/o/r/actions/workflows/3/dispatches": `{}`,
	}, "api.github.com", "uploads.github.com", "evil.example.com")
	lent := map[string]string{"github-token": "ghp_the-real-one"}
	notes := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(notes, []byte("what changed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := "o/r"
	for _, c := range []struct {
		id    bailey.CapabilityID
		input map[string]any
		asks  string
		body  string
	}{
		{"gh.api-send", map[string]any{"method": "POST", "endpoint": "repos/o/r/issues/5/labels", "fields": []any{"-flabels[]=bug"}}, "POST api.github.com/repos/o/r/issues/5/labels", "bug"},
		{"gh.api-send", map[string]any{"endpoint": "repos/o/r/issues/5/labels", "body": notes}, "POST api.github.com/repos/o/r/issues/5/labels", "what changed"},
		{"gh.api-delete", map[string]any{"method": "DELETE", "endpoint": "repos/o/r/labels/x"}, "DELETE api.github.com/repos/o/r/labels/x", ""},
		{"gh.gist-create", map[string]any{"file": notes}, "POST api.github.com/gists", "what changed"},
		{"gh.release-upload", map[string]any{"repo": r, "tag": "v1", "file": notes}, "POST uploads.github.com/repos/o/r/releases/1/assets?label=&name=notes", "what changed"},
		{"gh.repo-edit", map[string]any{"repo": r, "options": []any{"--enable-wiki=false"}}, "PATCH api.github.com/repos/o/r", `"has_wiki":false`},
		{"gh.run-rerun", map[string]any{"repo": r, "run": "7"}, "POST api.github.com/repos/o/r/actions/runs/7/rerun", ""},
		{"gh.workflow-run", map[string]any{"repo": r, "workflow": "ci.yml", "fields": []any{"-flevel=info"}, "options": []any{"-rmain"}}, "POST api.github.com/repos/o/r/actions/workflows/3/dispatches", "info"},
	} {
		before := len(s.requests())
		out := w.look(c.id, c.input, lent)
		found := false
		for _, r := range s.requests()[before:] {
			found = found || r.what == c.asks && strings.Contains(r.body, c.body)
			if auth := r.header.Get("Authorization"); auth != "token ghp_the-real-one" && auth != "Bearer ghp_the-real-one" {
				t.Errorf("%s with %q", r.what, auth)
			}
		}
		if !found || out.exit.Code != 0 || strings.Contains(out.String(), "ghp_") {
			t.Errorf("%s: %d\n%s\nasked %v", c.id, out.exit.Code, out, s.requests()[before:])
		}
	}
}

// TestGhChecksOut checks that the branch of a pull request of a public repository is checked out, and that git in this
// cage runs no program of a hostile repository and reaches no other host.
func TestGhChecksOut(t *testing.T) {
	ktest.Long(t)
	s := newSite(t, "git", "gh")
	h := &hub{site: s, dir: t.TempDir()}
	backend := &cgi.Handler{Path: "/usr/lib/git-core/git-http-backend", Env: []string{"GIT_PROJECT_ROOT=" + h.dir, "GIT_HTTP_EXPORT_ALL=1"}}
	s.https("github.com", "93.184.216.60", backend)
	s.https("evil.example", "93.184.216.61", backend)
	s.https("api.github.com", "93.184.216.62", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Write([]byte(`{"data":{"repository":{"pullRequest":{"id":"P","number":5,"state":"OPEN","headRefName":"topic","baseRefName":"main",
			"headRepository":{"id":"R","name":"b"},"headRepositoryOwner":{"id":"U","login":"a"},"isCrossRepository":false,"maintainerCanModify":false},
			"defaultBranchRef":{"name":"main"}}}}`))
	}))
	s.secrets = map[string]string{"github-token": githubToken}
	bare := filepath.Join(h.dir, "a/b.git")
	said(t, "git", "init", "-q", "--bare", "-b", "main", bare)
	w := h.work("w")
	h.commit(w, "first", bare)
	topic := h.work("topic")
	said(t, "git", "-C", topic, "pull", "-q", bare, "main")
	want := h.commit(topic, "second", "")
	said(t, "git", "-C", topic, "push", "-q", bare, "main:topic")
	said(t, "git", "-C", w, "remote", "add", "origin", "https://github.com/a/b.git")
	r := h.callAt("gh.pr-checkout", "dir", w, map[string]any{"repo": "a/b", "number": "5"})
	if got := h.id(w, "HEAD"); r.exit.Code != 0 || got != want {
		t.Errorf("%d, HEAD is %s, want %s\n%s\n%+v", r.exit.Code, got, want, r, r.report)
	}
	h.nowhere(w)
	h.hostile(w)
	h.callAt("gh.pr-checkout", "dir", w, map[string]any{"repo": "a/b", "number": "5"})
	h.nowhere(w)
	for _, at := range []string{"ran", ".git/ran"} {
		if _, err := os.Lstat(filepath.Join(w, at)); err == nil {
			t.Errorf("%s: something ran", at)
		}
	}
	s.only(t, "github.com", "api.github.com")
}
