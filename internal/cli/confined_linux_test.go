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
	if what := opened(file) + opened(dir); what != "" {
		t.Error(what)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if what := opened(file); what != "" {
		t.Errorf("an empty file: %s", what)
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if opened(file) == "" || opened(dir) == "" {
		t.Error("a file that can be read is taken for closed")
	}
}
