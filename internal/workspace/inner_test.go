package workspace

import (
	"os"
	"path/filepath"
	"testing"

	"bailey"
	"bailey/pack"
)

// TestWallHasOneWorkspace checks that an agent in its jail has only its own project, even if the home names other
// workspaces.
func TestWallHasOneWorkspace(t *testing.T) {
	home := Canonical(t.TempDir())
	one, two, sub := filepath.Join(home, "one"), filepath.Join(home, "two"), filepath.Join(home, "one", "sub")
	for _, dir := range []string{one, two, sub} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w := NewWorkspaces(nil, nil)
	w.Use([]string{one, two}, nil)
	w.Fix("s-wall", sub)
	open := func(id bailey.SessionID, dir, path string) error {
		p, err := w.Open(bailey.Call{Session: bailey.Session{ID: id}, Dir: dir}, pack.PathInput{Name: "path", Write: true}, path)
		p.File.Close()
		return err
	}
	for path, fits := range map[string]bool{sub: true, ".": true, one: false, two: false, "../../two": false} {
		if err := open("s-wall", sub, path); (err == nil) != fits {
			t.Errorf("%s: %v", path, err)
		}
		if err := open("s-other", sub, path); err != nil {
			t.Errorf("%s, of a session outside: %v", path, err)
		}
	}
	w.Use([]string{two}, nil)
	if open("s-wall", sub, ".") == nil {
		t.Error("a project that is no workspace any more is one")
	}
	w.End("s-wall")
	if err := open("s-wall", two, "."); err != nil {
		t.Error(err)
	}
}
