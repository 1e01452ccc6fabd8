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

// TestTeamDocument runs the shell block of docs/team.md as it stands, with the real program.
func TestTeamDocument(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	ktest.Require(t, "curl", "jq")
	text, err := os.ReadFile("../../../docs/team.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 1 {
		t.Fatalf("%d blocks", len(blocks))
	}
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir+"/",
		"../../../cmd/bailey-server").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", blocks[0][1])
	c.Dir = t.TempDir()
	c.Env = append(os.Environ(), "PATH="+dir+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"TMPDIR="+t.TempDir(), "HOME="+t.TempDir())
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"/join?token=binv_", "ada@example.com owner\n", "ok    database: SQLite",
		"ok    ledger: "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}
