//go:build linux

package jail

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// TestHide checks that the tool finds a readable empty file instead. If a file cannot be hidden reliably, the call must
// be refused.
func TestHide(t *testing.T) {
	ktest.Long(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"repo/.git/config", "repo/other/config", "repo/file"} {
		put(t, filepath.Join(root, name), "what it says", 0o644)
	}
	for link, to := range map[string]string{"repo/link": "other", "repo/other/link": "config"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	j, repo := newJail(t, Config{}), filepath.Join(root, "repo")
	config := repo + "/.git/config"
	job := func(write bool, hide ...string) bailey.Job {
		return bailey.Job{Places: []bailey.Place{place(t, repo, write)}, Hide: hide}
	}
	for range 2 { // the second run may use the cached plan of the first
		if r := ask(t, j, job(false), "show", config).must(t); !strings.HasPrefix(r.out, "what it says") {
			t.Errorf("not hidden: %q", r.out)
		}
		if r := ask(t, j, job(false, config, repo+"/.git/none", repo+"/none/none"), "show", config).must(t); strings.Contains(r.out, "what") || r.exit.Code != 0 {
			t.Errorf("hidden: %+v", r)
		}
	}
	for _, c := range []struct {
		what string
		job  bailey.Job
		says string
	}{
		{"through a link", job(false, repo+"/link/config"), "is not a directory itself"},
		{"a link", job(false, repo+"/other/link"), "is not a file itself"},
		{"through a file", job(false, repo+"/file/config"), "is not a directory itself"},
		{"a directory", job(false, repo+"/.git"), "is not a file itself"},
		{"where the tool writes", job(true, config), "in no read-only place"},
		{"outside", job(false, root+"/beside"), "in no read-only place"},
		{"upwards", job(false, repo+"/../repo/.git/config"), "in no read-only place"},
	} {
		if r := ask(t, j, c.job, "show", config); bailey.KindOf(r.err) != bailey.Denied || !strings.Contains(r.err.Error(), c.says) {
			t.Errorf("%s: %v %q", c.what, r.err, r.out)
		}
	}
}

// TestHideWhatCameLater checks that a file to hide that appears between plan and start is not shown either.
func TestHideWhatCameLater(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(root, "repo/.git/HEAD"), "", 0o644)
	j, repo := newJail(t, Config{}), filepath.Join(root, "repo")
	for _, name := range []string{repo + "/.git/config", repo + "/none/config"} {
		run, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"show", name}, Places: []bailey.Place{place(t, repo, false)}, Hide: []string{name}})
		if err != nil {
			t.Fatal(err)
		}
		defer run.Close()
		put(t, name, "what it says", 0o644)
		var out strings.Builder
		exit, err := run.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &out})
		if bailey.KindOf(err) != bailey.Conflict || exit.Code != bailey.NeverRan || out.Len() > 0 {
			t.Errorf("%s: %v %+v %q", name, err, exit, out.String())
		}
	}
}
