package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
)

// TestCheckout checks from which files the repository of a directory is read: those of .git of the directory or of the
// nearest one above it in the workspace, and never a file outside the workspace or a masked one.
func TestCheckout(t *testing.T) {
	top := Canonical(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(top, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		os.MkdirAll(filepath.Dir(filepath.Join(top, name)), 0o755)
		if err := os.Symlink(to, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	origin := func(name string) string { return "[remote \"origin\"]\nurl = https://github.com/" + name + ".git\n" }
	repository := func(dir, name string) {
		write(dir+"/.git/config", origin(name))
		write(dir+"/.git/HEAD", "ref: refs/heads/main\n")
	}
	repository("", "above/r") // above the workspace
	repository("p/a", "o/a")
	write("p/a/sub/deep/file", "")
	repository("p/a/vendor/b", "o/b")
	write("p/none/file", "")
	write("p/tree/.git", "gitdir: ../a/.git/worktrees/tree\n")
	write("p/a/.git/worktrees/tree/HEAD", "ref: refs/heads/topic\n")
	write("p/a/.git/worktrees/tree/commondir", "../..\n")
	write("p/away/.git", "gitdir: "+top+"/.git\n")
	link("../a/.git", "p/linked/.git")
	link(top+"/.git", "p/out/.git")
	link(top+"/.git/config", "p/config/.git/config")
	write("p/config/.git/HEAD", "ref: refs/heads/main\n")
	write("secret/config", origin("secret/r"))
	repository("p/masked", "o/masked")
	os.Remove(filepath.Join(top, "p/masked/.git/config"))
	link("../keys/config", "p/masked/.git/config")
	write("p/masked/keys/config", origin("secret/r"))
	write("p/large/.git/HEAD", "ref: refs/heads/main\n")
	write("p/large/.git/config", origin("o/large")+strings.Repeat("#\n", maxConfig/2+1))
	os.MkdirAll(filepath.Join(top, "p/dir/.git/config"), 0o755)

	w := NewWorkspaces([]string{top + "/p/masked/keys"}, nil)
	w.Use([]string{top + "/p"}, nil)
	for dir, want := range map[string]string{
		"p/a": "o/a main", "p/a/sub/deep": "o/a main", "p/a/vendor/b": "o/b main", "p/tree": "o/a topic",
		"p/linked": "", // .git leads out of its directory
		"p":        "", "p/none": "", "p/away": "", "p/out": "", "p/config": "", "p/masked": "", "p/large": "", "p/dir": "", "p/absent": "", "": "", "secret": "",
	} {
		c, err := w.Checkout(bailey.Call{Session: bailey.Session{ID: bailey.NewSessionID()}, Dir: filepath.Join(top, dir)})
		got := ""
		if err == nil {
			owner, name, err := c.Repository(true)
			branch, berr := c.Branch()
			if err == nil && berr == nil {
				got = owner + "/" + name + " " + branch
			}
		}
		if got != want {
			t.Errorf("%q is %q, want %q (%v)", dir, got, want, err)
		}
	}
}
