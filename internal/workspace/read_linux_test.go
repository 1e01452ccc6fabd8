package workspace

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/pack"
)

// TestHas checks that Has looks below the opened descriptor, even if its path names something else by then, and that it
// follows no path that leaves the descriptor's directory.
func TestHas(t *testing.T) {
	top := Canonical(t.TempDir())
	dir := filepath.Join(top, "repo")
	for _, d := range []string{"repo/.git/refs", "repo/sub", "evil/only"} {
		os.MkdirAll(filepath.Join(top, d), 0o755)
	}
	os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)
	os.Symlink(".git", filepath.Join(dir, "inside"))
	os.Symlink("../evil", filepath.Join(dir, "out"))
	os.Symlink("/etc", filepath.Join(dir, "etc"))
	os.Symlink("nowhere", filepath.Join(dir, "dangling"))
	os.Symlink("/proc/self/root", filepath.Join(dir, "magic"))
	p := opened(t, dir)
	os.Rename(dir, dir+".old")
	os.Rename(filepath.Join(top, "evil"), dir)
	var w Workspaces
	for below, want := range map[string]bool{".git": true, ".git/refs": true, "inside/refs": true, "file": true, "only": false, "absent": false, "file/x": false, "dangling": false} {
		if has, err := w.Has(p, below); err != nil || has != want {
			t.Errorf("%s: %v, %v", below, has, err)
		}
	}
	for _, below := range []string{"out", "out/only", "etc", "etc/passwd", "magic/etc", "../evil", "sub/../../evil", "/etc"} {
		if has, err := w.Has(p, below); has || err == nil {
			t.Errorf("%s: %v, %v", below, has, err)
		}
	}
}

// TestRead checks that Read reads the file of the opened descriptor, even if its path names another file by then.
func TestRead(t *testing.T) {
	path := fileOf(t, "harmless")
	p := opened(t, path)
	os.Rename(path, path+".old")
	os.WriteFile(path, []byte("evil"), 0o644)
	var w Workspaces
	r, err := w.Read(p)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "harmless" || r.Close() != nil {
		t.Errorf("%q, %v", b, err)
	}
	os.Truncate(path+".old", pack.MaxStdin+1) // the file has grown since it was opened
	if _, err := w.Read(p); bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), "more than 10485760") {
		t.Error(err)
	}
}

// TestStdinIsMasked checks that a file that is masked in every cage cannot be standard input either, for example
// through a symlink in a workspace.
func TestStdinIsMasked(t *testing.T) {
	dir := Canonical(t.TempDir())
	os.MkdirAll(filepath.Join(dir, "home"), 0o755)
	os.WriteFile(filepath.Join(dir, "home", "key"), []byte("x"), 0o644)
	os.WriteFile(filepath.Join(dir, "other"), []byte("x"), 0o644)
	os.Symlink("home/key", filepath.Join(dir, "link"))
	w := NewWorkspaces([]string{filepath.Join(dir, "home"), filepath.Join(dir, "agent")}, nil)
	w.Use([]string{dir}, nil)
	os.Symlink("other", filepath.Join(dir, "agent")) // created after the masks were set
	call := bailey.Call{Dir: dir, Session: bailey.Session{ID: bailey.NewSessionID()}}
	for _, name := range []string{"home/key", "link", "other", "agent"} {
		if _, err := w.Open(call, pack.PathInput{Name: "stdin", File: true}, name); bailey.KindOf(err) != bailey.Denied || !strings.Contains(err.Error(), "is masked") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOpenForStdin checks that standard input must be a file, of at most pack.MaxStdin bytes.
func TestOpenForStdin(t *testing.T) {
	dir := Canonical(t.TempDir())
	call := bailey.Call{Dir: dir, Session: bailey.Session{ID: bailey.NewSessionID()}}
	os.Mkdir(filepath.Join(dir, "sub"), 0o755)
	os.WriteFile(filepath.Join(dir, "small"), []byte("x"), 0o644)
	os.WriteFile(filepath.Join(dir, "large"), nil, 0o644)
	os.Truncate(filepath.Join(dir, "large"), pack.MaxStdin+1)
	w := NewWorkspaces(nil, nil)
	for name, want := range map[string]string{"small": "", "sub": "is a directory", "large": "more than 10485760"} {
		p, err := w.Open(call, pack.PathInput{Name: "stdin", File: true}, name)
		if want == "" && err != nil || want != "" && (bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			p.File.Close()
		}
	}
}
