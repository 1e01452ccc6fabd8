package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// serveFixtures serves the fixtures and returns the URL. The suite sends no tokens, so the server adds one.
func serveFixtures(t *testing.T) string {
	t.Helper()
	h := newFixtures(t)
	server := httptest.NewUnstartedServer(nil)
	host := server.Listener.Addr().String()
	local := "localhost" + strings.TrimPrefix(host, "127.0.0.1")
	front := Front{Hosts: []string{host, local}, Origins: []string{"http://" + host, "http://" + local}}
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer fixtures")
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), frontKey{}, front)))
	})
	server.Start()
	t.Cleanup(func() {
		h.Close(errors.New("the test is over"))
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL + HTTPPath
}

// scenario matches a line of the suite's output about one scenario, including those that are not scored.
var scenario = regexp.MustCompile(`(?m)^ *([✓✗]) ([a-z0-9-]+)`)

// TestConformance checks that the official suite passes completely for both revisions, including the scenarios of
// tasks.
func TestConformance(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "conformance")
	url := serveFixtures(t)
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			results := t.TempDir()
			cmd := exec.CommandContext(t.Context(), "conformance", "server", "--url", url, "--requirements", revision, "--output-dir", results)
			cmd.Dir = results
			out, err := cmd.CombinedOutput()
			passed, tasks := map[string]bool{}, 0 // a scenario may occur twice, also in a summary
			for _, m := range scenario.FindAllStringSubmatch(string(out), -1) {
				switch mark, name := m[1], m[2]; {
				case mark == "✗":
					t.Errorf("%s failed", name)
				case !passed[name]:
					passed[name] = true
					if strings.HasPrefix(name, "tasks-") {
						tasks++
					}
				}
			}
			if err != nil || len(passed) < 30 || revision == "2026-07-28" && tasks != 10 {
				t.Errorf("%v: %d scenarios passed, %d of tasks\n%s", err, len(passed), tasks, out[max(0, len(out)-4000):])
			}
			t.Logf("%d scenarios passed, %d of tasks", len(passed), tasks)
			if t.Failed() {
				t.Log(failedChecks(t, results))
			}
		})
	}
}

// failedChecks returns the suite's records of failed checks.
func failedChecks(t *testing.T, dir string) (failed string) {
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "checks.json" {
			return err
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, &checks)
		}
		for _, c := range checks {
			if c.Status == "FAILURE" {
				failed += c.ID + ": " + c.ErrorMessage + "\n"
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return failed
}
