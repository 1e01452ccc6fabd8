package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
	"bailey/test/since"
)

// committed returns checks for a repository with one commit, and a function that runs git in it.
func committed(t *testing.T) (*checks, *strings.Builder, func(args ...string) string) {
	t.Helper()
	ktest.Require(t, "git")
	dir, out := t.TempDir(), &strings.Builder{}
	git := func(args ...string) string {
		t.Helper()
		text, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, text)
		}
		return strings.TrimSpace(string(text))
	}
	git("init", "-q")
	put(t, filepath.Join(dir, "a.go"), "package a\n")
	put(t, filepath.Join(dir, ".ci", "run"), "exit 1\n")
	git("add", ".")
	git("commit", "-qm", "one")
	return &checks{out: out, dir: dir}, out, git
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestTree checks that the name of a tested tree depends on the files, committed or not, but not on the record.
func TestTree(t *testing.T) {
	ktest.Long(t)
	c, _, git := committed(t)
	tree := func() string {
		t.Helper()
		name, err := c.treeID(context.Background())
		if err != nil || len(name) != 40 {
			t.Fatalf("%q, %v", name, err)
		}
		return name
	}
	first := tree()
	put(t, filepath.Join(c.dir, since.Record), "something\n")
	if tree() != first {
		t.Error("the record names another tree")
	}
	put(t, filepath.Join(c.dir, "b.go"), "package a\n")
	second := tree()
	if second == first {
		t.Error("a new file names the same tree")
	}
	git("add", ".")
	git("commit", "-qm", "two")
	if tree() != second {
		t.Error("a commit of the same files names another tree")
	}
}

// TestKept checks that the result of a part is used only for the tree that it tested.
func TestKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kept", "full-form.json")
	if loadReport(file, "t") != nil {
		t.Error("a result was read that nobody kept")
	}
	r := &report{Part: "form", Tree: "t", Seconds: 3, Passed: []string{"m/p TestX"}, Skipped: []skippedTest{{"m/p", "TestY", "needs a moon"}}}
	if err := r.saveReport(file); err != nil {
		t.Fatal(err)
	}
	if got := loadReport(file, "t"); got == nil || len(got.Passed) != 1 || len(got.Skipped) != 1 || got.Seconds != 3 {
		t.Errorf("read back: %+v", got)
	}
	if loadReport(file, "u") != nil {
		t.Error("the result of one tree counts for another")
	}
	put(t, file, "{")
	if loadReport(file, "t") != nil {
		t.Error("half a result counts")
	}
}

// TestRecord checks that a commit is recorded, and that nothing is recorded if the working tree differs from it.
func TestRecord(t *testing.T) {
	c, out, git := committed(t)
	put(t, filepath.Join(c.dir, "b.go"), "package a\n")
	if err := c.recordPass(context.Background(), 60); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, since.Record)); err == nil || !strings.Contains(out.String(), "not recorded: the working tree has changes") {
		t.Errorf("changes that are not committed were recorded: %s", out)
	}
	git("add", ".")
	git("commit", "-qm", "two")
	for range 2 { // the record itself does not count as a change
		if err := c.recordPass(context.Background(), 60); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(c.dir, since.Record))
		if err != nil || !strings.HasPrefix(string(text), git("rev-parse", "HEAD")+" ") {
			t.Errorf("recorded %q, %v", text, err)
		}
	}
	changes, err := since.Read(c.dir)
	if err != nil || changes.Everything() || len(changes.Files) != 0 {
		t.Errorf("after the record %+v changed, %v", changes, err)
	}
}

// TestChangedPackage checks that a change of a file that the tests of a package read counts as a change of the package.
func TestChangedPackage(t *testing.T) {
	c := &checks{changes: since.Changes{Commit: "c", Files: []string{"a/x.go", "b/testdata/y/z.json", "d/readme.md", "e/sub/x.go", "f/x_amd64.s"}}}
	for dir, want := range map[string]bool{"a": true, "b": true, "d": false, "e": false, "e/sub": true, "f": true, ".": false} {
		if c.changedPackage(dir) != want {
			t.Errorf("%s changed: %v, want %v", dir, !want, want)
		}
	}
	if c.changes = (since.Changes{}); !c.changedPackage("d") {
		t.Error("without a record not everything changed")
	}
}
