package wrap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSweepGoesOn checks that one tool's leftovers do not keep a gateway from starting, and are tried again next time.
func TestSweepGoesOn(t *testing.T) {
	caches, project, other := t.TempDir(), filepath.Join(t.TempDir(), "p"), t.TempDir()
	s := State(filepath.Join(caches, "make"))
	os.Mkdir(project, 0o755)
	r, _ := begin(t, s, project, true)
	r.Abandon()
	r, _ = begin(t, s, other, true)
	r.Abandon()
	put(t, other, ".envrc")
	os.Remove(project)
	os.WriteFile(project, nil, 0o644) // a walk of this project must fail
	for range 2 {
		words, err := Sweep(caches)
		if err != nil || !strings.Contains(strings.Join(words, "\n"), project) {
			t.Errorf("%q %v", words, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(other, ".envrc")); err == nil {
		t.Error("what another left is there")
	}
	os.WriteFile(s.recordPath("w-bad"), []byte("{"), 0o600)
	os.Remove(project)
	if words, err := Sweep(caches); err != nil || !strings.Contains(strings.Join(words, "\n"), "w-bad") {
		t.Errorf("%q %v", words, err)
	}
	if left, _ := filepath.Glob(s.joinPath("runs", "w-*.json")); len(left) != 1 {
		t.Error(left)
	}
}
