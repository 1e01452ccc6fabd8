//go:build linux

package policyfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"bailey/internal/ktest"
	"bailey/internal/policy"
)

// TestPolicyDirectory checks that the policy files of a directory are read in order, and that any other file is
// rejected.
func TestPolicyDirectory(t *testing.T) {
	ktest.Long(t)
	dir := t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(want string) {
		t.Helper()
		if _, err := ReadDir(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused("no *.cedar in ")
	for _, name := range []string{"b.cedar", "a.cedar", "README", "README.txt", "x.md", ".hidden", "x.test.yaml", "budgets.yaml"} {
		put(name, name)
	}
	files, err := ReadDir(dir)
	if names := sourceNames(files.Rules); err != nil || !slices.Equal(names, []string{"a.cedar=a.cedar", "b.cedar=b.cedar"}) {
		t.Errorf("%v %v", names, err)
	}
	for _, name := range []string{"rules.ceddar", "c.cedar~", "CEDAR", "budgets.yml", "x\x1b[2J"} {
		put(name, "")
		refused("in the policy's directory is not")
		os.Remove(filepath.Join(dir, name))
	}
	if err := os.Mkdir(filepath.Join(dir, "d.cedar"), 0o700); err != nil {
		t.Fatal(err)
	}
	refused("is not a regular file")
	os.Remove(filepath.Join(dir, "d.cedar"))
	if err := os.Symlink("a.cedar", filepath.Join(dir, "l.cedar")); err != nil {
		t.Fatal(err)
	}
	refused("is not a regular file")
	os.Remove(filepath.Join(dir, "l.cedar"))
	if err := syscall.Mkfifo(filepath.Join(dir, "p.cedar"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("is not a regular file")
	os.Remove(filepath.Join(dir, "p.cedar"))
	put("u.cedar", "// \xff")
	refused("u.cedar is not UTF-8")
	os.Remove(filepath.Join(dir, "u.cedar"))
	if err := os.Truncate(filepath.Join(dir, "a.cedar"), maxPolicyBytes+1); err != nil {
		t.Fatal(err)
	}
	refused("a policy may have at most 4194304 bytes")
	os.Remove(filepath.Join(dir, "a.cedar"))
	for i := range maxPolicyFiles {
		put(fmt.Sprint(i, ".cedar"), "")
	}
	refused("more than 1000 files")
}

func sourceNames(list []policy.Source) (names []string) {
	for _, s := range list {
		names = append(names, s.Name+"="+string(s.Text))
	}
	return names
}
