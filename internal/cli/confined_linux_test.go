package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// TestOpened checks that a missing, empty or unreadable path does not count as access.
func TestOpened(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if what := describeAccess(file) + describeAccess(dir); what != "" {
		t.Error(what)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if what := describeAccess(file); what != "" {
		t.Errorf("an empty file: %s", what)
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if describeAccess(file) == "" || describeAccess(dir) == "" {
		t.Error("a file that can be read is taken for closed")
	}
}
