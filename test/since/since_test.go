package since

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// repository creates a repository with the files a.go, d/a_test.go and d/testdata/x committed, and returns its
// directory and a function that runs git there.
func repository(t *testing.T) (dir string, git func(args ...string) string) {
	t.Helper()
	ktest.Require(t, "git")
	dir = t.TempDir()
	git = func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	git("init", "-q")
	write(t, dir, "a.go", "package a // one\n")
	write(t, dir, "d/a_test.go", "package d\n")
	write(t, dir, "d/testdata/x", "x\n")
	git("add", ".")
	git("commit", "-qm", "one")
	return dir, git
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir string) Changes {
	t.Helper()
	c, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWithoutRecordEverythingChanged(t *testing.T) {
	dir, _ := repository(t)
	for _, record := range []string{"", "\n", "0123456789012345678901234567890123456789 2026-11-24\n"} {
		if record != "" {
			write(t, dir, Record, record)
		}
		if c := read(t, dir); !c.Everything() || !c.File("a.go") || !c.Below("d") || !c.Tests("d") || !c.New("a.go", "one") {
			t.Errorf("with the record %q: %+v", record, c)
		}
	}
}

func TestChanges(t *testing.T) {
	dir, git := repository(t)
	write(t, dir, Record, git("rev-parse", "HEAD"))
	if c := read(t, dir); c.Everything() || len(c.Files) != 0 {
		t.Fatalf("nothing changed, and Read says %+v", c)
	}

	write(t, dir, "a.go", "package a // one, two\n\nvar A = 2\n") // committed
	git("commit", "-qam", "two")
	write(t, dir, "d/testdata/x", "y\n") // in the working tree
	write(t, dir, "e/new.go", "package e\n")
	c := read(t, dir)
	for name, want := range map[string]bool{"a.go": true, "d/testdata/x": true, "e/new.go": true, "d/a_test.go": false} {
		if c.File(name) != want {
			t.Errorf("File(%q) = %v in %v", name, !want, c.Files)
		}
	}
	if !c.Tests("d") || c.Tests("e") || !c.Below("e") || c.Below("f") {
		t.Errorf("directories are judged wrongly: %v", c.Files)
	}
	if !c.New("a.go", "two") || c.New("a.go", "one") || c.New("d/a_test.go", "never there") {
		t.Error("New does not compare with the recorded version")
	}

	git("mv", "d/a_test.go", "d/b_test.go")
	if c := read(t, dir); !c.File("d/a_test.go") || !c.File("d/b_test.go") {
		t.Errorf("a renamed file is not both of its names: %v", c.Files)
	}
}

// TestOnlyComments checks that if only the comments of a Go file changed, no test is due. Comments that programs read
// must count as code.
func TestOnlyComments(t *testing.T) {
	dir, git := repository(t)
	before := "//go:build linux\n\npackage c\n\n// A is one.\nvar A = f(1, /* two */ 2) // three\n"
	for name, text := range map[string]string{"c.go": before, "c.txt": "// one\n", "cgo.go": "package c\n\n// int a;\nimport \"C\"\n",
		"c_test.go": "package c\n\nfunc ExampleA() {\n\t// Output: 1\n}\n"} {
		write(t, dir, name, text)
	}
	git("add", ".")
	git("commit", "-qm", "two")
	write(t, dir, Record, git("rev-parse", "HEAD"))
	for i, c := range []struct {
		name, text string
		only       bool
	}{
		{"c.go", "//go:build linux\n\n// Package c is new.\npackage c\n\n// A is 1.\n//\n// Indeed.\nvar A = f(1, 2)\n\n// The end.\n", true},
		{"c.go", strings.Replace(before, "linux", "darwin", 1), false},
		{"c.go", "//go:debug x=1\n" + before, false},
		{"c.go", strings.Replace(before, "f(1, /*", "f(1, 1, /*", 1), false},
		{"c.go", strings.Replace(before, "// A is one.", `const a = "//"`, 1), false},
		{"c.go", strings.Replace(before, "// A is one.", "//go:noinline", 1), false},
		{"c.go", before + "\x00", false},
		{"c.txt", "// two\n", false},
		{"cgo.go", "package c\n\n// int b;\nimport \"C\"\n", false},
		{"c_test.go", "package c\n\nfunc ExampleA() {\n\t// Output: 2\n}\n", false},
		{"new.go", "// Package c.\npackage c\n", false},
	} {
		git("reset", "-q", "--hard")
		write(t, dir, Record, git("rev-parse", "HEAD"))
		write(t, dir, c.name, c.text)
		now := read(t, dir)
		if slices.Contains(now.Comments, c.name) != c.only || slices.Contains(now.Files, c.name) == c.only {
			t.Errorf("%d: %s: files %v, comments %v", i, c.name, now.Files, now.Comments)
		}
	}
}

// TestAsked checks that without the variable no long check is due. With it, the changed ones or all must be due.
func TestAsked(t *testing.T) {
	for env, want := range map[string]bool{"": false, "all": true} {
		t.Setenv(Env, env)
		if Due(t, "no/such/directory") != want {
			t.Errorf("with %s=%q a directory is due: %v", Env, env, !want)
		}
		skipped := true
		t.Run("as it should", func(t *testing.T) {
			Require(t)
			RequireDue(t, "no/such/directory")
			skipped = false
		})
		if skipped == want {
			t.Errorf("with %s=%q a long test is skipped: %v", Env, env, skipped)
		}
	}
}
