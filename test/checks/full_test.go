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

// TestKept checks that half a result, or one without the tree that it tested, does not count.
func TestKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kept", "full-form.json")
	if loadReport(file) != nil {
		t.Error("a result was read that nobody kept")
	}
	r := &report{Part: "form", Tree: "t", Seconds: 3, Passed: []string{"m/p TestX"}, Skipped: []skippedTest{{"m/p", "TestY", "needs a moon"}}}
	if err := r.saveReport(file); err != nil {
		t.Fatal(err)
	}
	if got := loadReport(file); got == nil || got.Tree != "t" || len(got.Passed) != 1 || len(got.Skipped) != 1 || got.Seconds != 3 {
		t.Errorf("read back: %+v", got)
	}
	for _, text := range []string{"{", `{"part":"form"}`} {
		put(t, file, text)
		if loadReport(file) != nil {
			t.Errorf("%s counts", text)
		}
	}
}

// passedParts stores reports of two parts that passed on these commits.
func passedParts(t *testing.T, first, second string) []part {
	t.Helper()
	for name, commit := range map[string]string{"form": first, "broken gates": second} {
		if err := (&report{Part: name, Tree: "t", Commit: commit, Seconds: 30}).saveReport(keptFile(name)); err != nil {
			t.Fatal(err)
		}
	}
	return []part{{name: "form"}, {name: "broken gates"}}
}

// TestRecord checks that a commit is recorded, and that nothing is recorded if the working tree differs from it.
func TestRecord(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c, out, git := committed(t)
	parts := passedParts(t, git("rev-parse", "HEAD"), git("rev-parse", "HEAD"))
	put(t, filepath.Join(c.dir, "b.go"), "package a\n")
	if err := c.recordPass(context.Background(), parts); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, since.Record)); err == nil || !strings.Contains(out.String(), "not recorded: the working tree has changes") {
		t.Errorf("changes that are not committed were recorded: %s", out)
	}
	git("add", ".")
	git("commit", "-qm", "two")
	parts = passedParts(t, git("rev-parse", "HEAD"), git("rev-parse", "HEAD"))
	for range 2 { // the record itself does not count as a change
		if err := c.recordPass(context.Background(), parts); err != nil {
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

// TestRecordOfSeveral checks that parts which passed on different commits record one that comes before all of them, and
// that a part which passed on no commit of this history records nothing.
func TestRecordOfSeveral(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c, out, git := committed(t)
	commit := func(file string) string {
		put(t, filepath.Join(c.dir, file), "package a\n")
		git("add", ".")
		git("commit", "-qm", file)
		return git("rev-parse", "HEAD")
	}
	one := git("rev-parse", "HEAD")
	git("switch", "-qc", "side")
	aside := commit("b.go")
	git("switch", "-q", "-")
	two, three := commit("c.go"), commit("d.go")
	for _, tt := range []struct{ first, second, want string }{
		{two, three, two}, {three, two, two}, {three, three, three}, {one, three, one},
		{aside, three, ""}, {two, "", ""}, {two, strings.Repeat("1", 40), ""},
	} {
		os.Remove(filepath.Join(c.dir, since.Record))
		if err := c.recordPass(context.Background(), passedParts(t, tt.first, tt.second)); err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(filepath.Join(c.dir, since.Record))
		if got, _, _ := strings.Cut(string(text), " "); got != tt.want {
			t.Errorf("form passed on %.8s and broken gates on %.8s: recorded %q, want %q\n%s", tt.first, tt.second, got, tt.want, out)
		}
	}
	git("merge", "-q", "--no-edit", "side")
	if err := c.recordPass(context.Background(), passedParts(t, aside, three)); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(filepath.Join(c.dir, since.Record))
	if !strings.HasPrefix(string(text), one+" ") {
		t.Errorf("two lines that were merged: recorded %s, want %s", text, one)
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
