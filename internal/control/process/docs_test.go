//go:build linux

package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// TestTeamDocument runs the shell blocks of docs/team.md as they stand, with the real programs.
func TestTeamDocument(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	ktest.Require(t, "curl", "jq", "ssh-keygen", "userns", "netns")
	text, err := os.ReadFile("../../../docs/team.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	wants := [][]string{
		{"/join?token=binv_", "ada@example.com owner\n", "ok    database: SQLite", "ok    ledger: "},
		{"system.date", "on laptop", "on runner", "approved: the call goes on", "sealed by bailey-server/", "its bytes were changed", "an incident", "ok    ledger: "},
	}
	if len(blocks) != len(wants) {
		t.Fatalf("%d blocks", len(blocks))
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", "../../../cmd/bailey-server", "../../../cmd/bailey",
		"../../../cmd/bailey-link")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, block := range blocks {
		c := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", block[1])
		c.Dir = t.TempDir()
		c.Env = append(os.Environ(), "PATH="+dir+string(filepath.ListSeparator)+os.Getenv("PATH"),
			"TMPDIR="+t.TempDir(), "HOME="+t.TempDir())
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("block %d: %v: %s", i+1, err, out)
		}
		for _, want := range wants[i] {
			if !strings.Contains(string(out), want) {
				t.Errorf("block %d: no %q in %s", i+1, want, out)
			}
		}
	}
}
