package workspace

import (
	"path/filepath"
	"testing"
)

func TestFit(t *testing.T) {
	project := t.TempDir()
	w := NewWorkspaces([]string{filepath.Join(project, "secret")}, []string{"/home/somebody"})
	for dir, fit := range map[string]bool{"/": false, "/etc": false, project: false, filepath.Join(project, "none"): false, t.TempDir(): true} {
		if err := w.Fit(dir); (err == nil) != fit {
			t.Errorf("%s: %v, want fit %v", dir, err, fit)
		}
	}
	if len(w.roots) != 0 {
		t.Errorf("asking fixed a workspace: %v", w.roots)
	}
}
