package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/pack"
)

// TestOpenTheWorkspace checks that a tool that names no path gets the caller's workspace, read-only, even if the caller
// gives a path. If there are several workspaces, it gets the one that the caller is in.
func TestOpenTheWorkspace(t *testing.T) {
	top := Canonical(t.TempDir())
	a, b := filepath.Join(top, "a"), filepath.Join(top, "b")
	sub := filepath.Join(a, "sub")
	for _, d := range []string{sub, b} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	call := func(dir string) bailey.Call {
		return bailey.Call{Dir: dir, Session: bailey.Session{ID: bailey.NewSessionID()}}
	}
	for _, c := range []struct {
		name       string
		named      []string
		dir, want  string
		wall, path string
	}{
		{"its own directory", nil, sub, sub, "", ""},
		{"the one there is", []string{a}, top, a, "", ""},
		{"the one it is in", []string{b, a}, sub, a, "", ""},
		{"a path says nothing", []string{a}, sub, a, "", b},
		{"the narrowest", []string{a, sub, b}, sub, sub, "", ""},
		{"one that is named twice", []string{a, a}, top, a, "", ""},
		{"none of two", []string{a, b}, top, "", "", ""},
		{"the project of a wall", []string{a, b}, b, sub, sub, ""},
		{"a home", nil, top, "", "", ""},
	} {
		w := NewWorkspaces(nil, []string{top})
		w.Use(c.named, nil)
		in := call(c.dir)
		if c.wall != "" {
			w.Fix(in.Session.ID, c.wall)
		}
		p, err := w.Open(in, pack.PathInput{Dir: true}, c.path)
		switch {
		case c.want == "" && (bailey.KindOf(err) != bailey.Denied || bailey.HintOf(err) == "" || strings.Contains(err.Error(), "input /")):
			t.Errorf("%s: %q, %v", c.name, p.Path, err)
		case c.want != "" && (err != nil || p.Path != c.want || p.Write || p.Input != ""):
			t.Errorf("%s: %+v, %v", c.name, p, err)
		}
		if err == nil {
			p.File.Close()
		}
	}
}
