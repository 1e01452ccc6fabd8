//go:build linux

package readonlyshell

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
	"bailey/internal/readonly"
)

// TestOwnProgram runs a command that an operator added, and refuses it with another file, with a file or a program that
// other users can change, and for a program that is a link to one that must not be added.
func TestOwnProgram(t *testing.T) {
	needed(t)
	ktest.Require(t, "root")
	dir, err := os.MkdirTemp("/var/lib", "bailey-own-") // a directory of root up to /
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "commands.json")
	text := `{"commands":[{"program":"/usr/bin/factor","stops":"x","operands":{"kind":"words","most":1}},
		{"program":"` + dir + `/appsh","stops":"x","operands":{"kind":"words"}},
		{"program":"` + dir + `/open/appctl","stops":"x"},{"program":"` + dir + `/gone","stops":"x"}]}`
	for _, err := range []error{os.Chmod(dir, 0o755), os.MkdirAll(filepath.Join(dir, "open"), 0o755), os.Chmod(filepath.Join(dir, "open"), 0o777),
		os.WriteFile(file, []byte(text), 0o644), os.Symlink("../../../bin/sh", filepath.Join(dir, "appsh")),
		os.WriteFile(filepath.Join(dir, "open", "appctl"), []byte("#!/bin/sh\n"), 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	own, err := readonly.ParseOwn([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	run := func(line, digest string) result {
		return login{line: line, request: Request{Own: digest}, env: []string{commandsVariable + "=" + file}}.run(t)
	}
	if r := run("factor 12 | cat", own.Digest); r.out != "12: 2 2 3\n" || r.code != 0 {
		t.Errorf("%+v", r)
	}
	refuses := func(line, digest, says string) {
		t.Helper()
		if r := run(line, digest); r.code != ExitRefused || !strings.Contains(r.log, says) || r.out != "" {
			t.Errorf("%s: %+v, want %q", line, r, says)
		}
	}
	refuses("factor 12", "", "is not in the read-only set")
	refuses("factor 12 13", own.Digest, "at most 1")
	refuses("factor 12", Digest("other"), "prepares the host again")
	refuses(dir+"/appsh -c id", own.Digest, "-c")
	refuses("appsh id", own.Digest, "is another program")
	refuses("appctl", own.Digest, "users other than root can change "+dir+"/open")
	if r := run("gone", own.Digest); r.code != 127 {
		t.Errorf("a missing program: %+v", r)
	}
	for _, mode := range []os.FileMode{0o666, 0o664} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		refuses("factor 12", own.Digest, "users other than root can change")
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	refuses("factor 12", own.Digest, "is not the file that the gateway has")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	refuses("factor 12", own.Digest, "does not exist")
	if r := run("id -u", ""); r.out != "31973\n" {
		t.Errorf("without a command of the operator: %+v", r)
	}
}
