//go:build linux

package reach

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// yard serves files for clients at api.example.com and evil.example: a page, a repository, a Go module and an npm
// package.
func yard(t *testing.T, programs ...string) *world {
	w := newWorld(t, programs...)
	dir := t.TempDir()
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprintln(rw, "the page") })
	mux.HandleFunc("/away", func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "https://evil.example/x", http.StatusFound)
	})
	mux.HandleFunc("/own", func(rw http.ResponseWriter, r *http.Request) {
		// a server that answers before it has the body gets none, and then nothing in the body is seen
		io.Copy(io.Discard, r.Body)
		fmt.Fprintln(rw, r.Header.Get("Authorization"))
	})
	mux.Handle("/git/", http.StripPrefix("/git", &cgi.Handler{Path: "/usr/lib/git-core/git-http-backend", Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"}}))
	info := `{"Version":"v1.0.0","Time":"2026-01-02T03:04:05Z"}`
	mux.HandleFunc("/example.com/m/@v/v1.0.0.info", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, info) })
	mux.HandleFunc("/example.com/m/@v/v1.0.0.mod", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "module example.com/m\n") })
	mux.HandleFunc("/example.com/m/@v/v1.0.0.zip", func(rw http.ResponseWriter, _ *http.Request) { rw.Write(moduleZip(t)) })
	mux.HandleFunc("/yard-pad", func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(rw, `{"name":"yard-pad","dist-tags":{"latest":"4.5.6"},"versions":{"4.5.6":{"name":"yard-pad","version":"4.5.6","dist":{"tarball":"https://api.example.com/t.tgz"}}}}`)
	})
	w.https("api.example.com", "93.184.216.34", mux)
	w.https("evil.example", "93.184.216.35", mux)
	if len(programs) > 0 && programs[0] == "git" {
		said(t, "git", "init", "-q", "--bare", filepath.Join(dir, "repo.git"))
		work := t.TempDir()
		said(t, "git", "-C", work, "init", "-q")
		said(t, "git", "-C", work, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "one")
		said(t, "git", "-C", work, "push", "-q", filepath.Join(dir, "repo.git"), "HEAD:refs/heads/main")
	}
	return w
}

func said(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", program, args, err, out)
	}
	return string(out)
}

func moduleZip(t *testing.T) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	f, err := z.Create("example.com/m@v1.0.0/go.mod")
	if err == nil {
		_, err = f.Write([]byte("module example.com/m\n"))
	}
	if err != nil || z.Close() != nil {
		t.Error("no zip of a module")
	}
	return b.Bytes()
}

// TestClients checks that common programs reach the allowed host and no other, whether or not they support a proxy.
func TestClients(t *testing.T) {
	ktest.Long(t)
	npm, missing := exec.LookPath("npm")
	if missing == nil {
		npm, missing = filepath.EvalSymlinks(npm)
	}
	npm = filepath.Dir(filepath.Dir(npm)) // parent of bin/npm-cli.js
	root := strings.TrimSpace(said(t, "go", "env", "GOROOT"))
	for _, c := range []struct {
		program string
		job     func(host string) bailey.Job
		want    string
	}{
		{"curl", func(host string) bailey.Job {
			return bailey.Job{Command: "curl", Args: []string{"-q", "-sS", "https://" + host + "/page"}}
		}, "the page"},
		{"git", func(host string) bailey.Job {
			return bailey.Job{Command: "git", Args: []string{"ls-remote", "https://" + host + "/git/repo.git"}, Env: []string{"GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1"},
				Exec: []string{"/usr/lib/git-core/git-remote-https", "/usr/lib/git-core/git"}}
		}, "refs/heads/main"},
		{"go", func(host string) bailey.Job {
			return bailey.Job{Command: filepath.Join(root, "bin/go"), Read: []string{root}, NeedsProc: true, Args: []string{"mod", "download", "-json", "example.com/m@v1.0.0"},
				Env: []string{"GOROOT=" + root, "GOPROXY=https://" + host, "GOSUMDB=off", "GOTOOLCHAIN=local", "GOPATH=/tmp/go", "GOCACHE=/tmp/cache", "GOENV=off", "GOFLAGS=-modcacherw"}}
		}, `"Zip": "/tmp/go/pkg/mod/cache/download/example.com/m/@v/v1.0.0.zip"`},
		{"npm", func(host string) bailey.Job {
			return bailey.Job{Command: "node", Read: []string{npm, "/usr/share/nodejs"}, NeedsProc: true, Limits: bailey.Limits{MemoryBytes: 1 << 30, Tasks: 128},
				Args: []string{filepath.Join(npm, "bin/npm-cli.js"), "view", "yard-pad", "version", "--registry", "https://" + host + "/", "--fetch-retries=0", "--cache=/tmp/npm", "--no-update-notifier"}}
		}, "4.5.6"},
	} {
		t.Run(c.program, func(t *testing.T) {
			w := yard(t, c.program)
			if c.program == "npm" && missing != nil {
				ktest.Missing(t, "npm", missing)
			}
			for _, bare := range []bool{false, true} {
				r := w.run(c.job("api.example.com"), bare, "api.example.com:443")
				if r.exit.Code != 0 || !strings.Contains(r.out, c.want) || r.report.Refused != 0 || r.report.Connections == 0 {
					t.Errorf("bare %v: exit %d, %+v\n%s", bare, r.exit.Code, r.report, r)
				}
				r = w.run(c.job("evil.example"), bare, "api.example.com:443")
				if r.exit.Code == 0 || strings.Contains(r.out, c.want) {
					t.Errorf("bare %v: it reached what is not allowed\n%s", bare, r)
				}
				if !bare {
					r.refused(t, "egress to evil.example:443 is not allowed; allowed: api.example.com:443")
				}
			}
			for _, at := range w.reached() {
				if at != "93.184.216.34:443" {
					t.Errorf("the proxy connected to %s", at)
				}
			}
		})
	}
}
