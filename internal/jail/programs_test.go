//go:build linux

package jail

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

func sum(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// direct starts a program without a cage. It retries on ETXTBSY: a concurrent fork may briefly hold a new file open.
func direct(path string, args ...string) (out []byte, err error) {
	for range 1000 {
		if out, err = exec.Command(path, args...).Output(); !errors.Is(err, unix.ETXTBSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return out, err
}

func real(t testing.TB, path string) string {
	t.Helper()
	r, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestScripts checks that scripts run as with execve(2), without env(1), and without being executable in the cage.
func TestScripts(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "/bin/sh", "/bin/echo", "/usr/bin/env")
	j := newJail(t, Config{})
	dir := public(t)
	say := put(t, filepath.Join(dir, "say"), "#!/bin/sh -e\necho \"$0 $*\"\n", 0o755)
	shell := put(t, filepath.Join(dir, "shell"), "#!/bin/sh\necho shell \"$@\"\n", 0o755)
	for _, c := range []struct{ name, text, want string }{
		{"absolute", "#!/bin/sh\necho \"$0 $*\"\n", "PATH a b"},
		{"with an argument", "#!/bin/sh -eu\nfalse\necho not reached\n", ""},
		{"by env", "#!/usr/bin/env sh\necho \"$0 $*\"\n", "PATH a b"},
		{"by env with words", "#!/usr/bin/env -S sh -u\necho \"$0 $*\"\n", "PATH a b"},
		{"by another script", "#!" + say + " one two\n", say + " one two PATH a b"},
		{"by env and another script", "#!/usr/bin/env -S " + shell + " x\n", "shell x PATH a b"},
		{"echoed", "#!/bin/echo\n", "PATH a b"},
		{"cannot run itself", "#!/bin/sh\n\"$0\" || echo exit $?\n", "exit 126"},
		{"finds no env", "#!/usr/bin/env sh\n/usr/bin/env true 2> /dev/null || echo exit $?\n", "exit 127"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := put(t, filepath.Join(public(t), "script"), c.text, 0o755)
			r := ask(t, j, bailey.Job{Command: path, Args: []string{"a", "b"}}).must(t)
			if want := strings.ReplaceAll(c.want, "PATH", path); r.first() != want {
				t.Errorf("%q (%s), want %q", r.out, r.log, want)
			}
		})
	}
}

// TestProgramsAreListed checks that a receipt lists the script, its interpreters, then the helpers, each once with its
// digest.
func TestProgramsAreListed(t *testing.T) {
	ktest.Require(t, "/bin/sh", "/bin/true", "/usr/bin/env")
	j := newJail(t, Config{})
	path := put(t, filepath.Join(public(t), "script"), "#!/usr/bin/env sh\n", 0o755)
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	helper := put(t, filepath.Join(public(t), "helper"), "#!/usr/bin/env true\n", 0o755)
	r, err := j.Plan(t.Context(), bailey.Job{Command: link, Exec: []string{"/bin/true", helper}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := r.Cage()
	var got []string
	for _, p := range c.Programs {
		got = append(got, p.Path)
		if p.SHA256 != sum(t, p.Path) || p.Was != "" || p.Copied != (os.Geteuid() != 0 && (p.Path == path || p.Path == helper)) {
			t.Errorf("%+v", p)
		}
	}
	loader := real(t, loaderOf(t))
	want := []string{path, real(t, "/bin/sh"), loader, real(t, "/bin/true"), helper, real(t, "/usr/bin/env")}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%q, want %q", got, want)
	}
	if c.Binary != path || c.BinaryDigest != sum(t, path) {
		t.Errorf("the binary is %s, %s", c.Binary, c.BinaryDigest)
	}
}

// TestHelpersThatAreScripts checks helpers whose first line the kernel follows, so that all of it must be in the cage.
func TestHelpersThatAreScripts(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "/bin/sh", "/bin/echo", "/usr/bin/env")
	j := newJail(t, Config{})
	for _, line := range []string{"#!/bin/sh", "#!/usr/bin/env sh"} {
		helper := put(t, filepath.Join(public(t), "helper"), line+"\necho helped \"$@\"\n", 0o755)
		tool := put(t, filepath.Join(public(t), "tool"), "#!/bin/sh\n"+helper+" x\n", 0o755)
		if r := ask(t, j, bailey.Job{Command: tool, Exec: []string{helper}}).must(t); r.first() != "helped x" {
			t.Errorf("%s: %+v", line, r)
		}
		if r := ask(t, j, bailey.Job{Command: tool}).must(t); r.exit.Code != 127 {
			t.Errorf("%s: a helper that is not declared: %+v", line, r)
		}
		both := bailey.Job{Command: helper, Args: []string{"y"}, Exec: []string{helper}}
		if r := ask(t, j, both).must(t); r.first() != "helped y" {
			t.Errorf("%s: tool and helper in one: %+v", line, r)
		}
	}
}

func TestScriptsThatAreRefused(t *testing.T) {
	j := newJail(t, Config{})
	dir := public(t)
	for text, want := range map[string]string{
		"#!/bin/sh\r\n": "carriage return", "#!/bin/sh -e\r\n": "carriage return", "#!/bin/\x1bsh\n": "control character",
		"#!sh\n": "plain absolute path", "#!bin/sh\n": "plain absolute path", "#!/bin/../bin/sh\n": "plain absolute path", "#!": "plain absolute path",
		"#!/usr/bin/env\n": "without a program", "#!/usr/bin/env sh -e\n": "only a name", "#!/usr/bin/env -i sh\n": "only a name",
		"#!/usr/bin/env -S A=b sh\n": "only a name", "#!/usr/bin/env -S \"sh\"\n": "only a name",
		"#!/usr/bin/env ../sh\n": "is missing", "#!/usr/bin/env no-such-program\n": "is missing", "#!/no/such\n": "does not exist",
		"#!" + dir + "\n": "cannot be run", "#!/etc/passwd\n": "cannot be run",
		"#!" + filepath.Join(dir, "script") + "\n": "is also a script",
	} {
		path := put(t, filepath.Join(dir, "script"), text, 0o755)
		_, err := j.Plan(t.Context(), bailey.Job{Command: path})
		if k := bailey.KindOf(err); k != bailey.Unavailable && k != bailey.Invalid || !strings.Contains(err.Error(), want) || bailey.HintOf(err) == "" {
			t.Errorf("%q: %v (%s), want %q", text, err, bailey.HintOf(err), want)
		}
	}
}

// TestScriptsOfScripts checks that scripts can be nested as deep as the kernel allows.
func TestScriptsOfScripts(t *testing.T) {
	ktest.Require(t, "/bin/echo")
	j := newJail(t, Config{})
	dir, by := public(t), "/bin/echo"
	for depth := 1; depth <= maxScripts+1; depth++ {
		by = put(t, filepath.Join(dir, fmt.Sprint(depth)), "#!"+by+" "+fmt.Sprint(depth)+"\n", 0o755)
		kernel, kerr := direct(by, "end")
		r := ask(t, j, bailey.Job{Command: by, Args: []string{"end"}})
		if r.out != string(kernel) || (r.err == nil) != (kerr == nil) {
			t.Errorf("%d scripts: %q, %v; the kernel's own: %q, %v", depth, r.out, r.err, kernel, kerr)
		}
	}
}

// TestPinnedProgramsChange checks that every program executed in place is compared again before the start.
func TestPinnedProgramsChange(t *testing.T) {
	ktest.Require(t, "root", "/bin/sh", "/bin/true")
	j := newJail(t, Config{})
	dir := public(t)
	shell, helper := filepath.Join(dir, "shell"), filepath.Join(dir, "helper")
	copyFile(t, real(t, "/bin/sh"), shell)
	copyFile(t, real(t, "/bin/true"), helper)
	tool := put(t, filepath.Join(dir, "tool"), "#!"+shell+"\n:\n", 0o755)
	job := bailey.Job{Command: tool, Exec: []string{helper}}
	if r := ask(t, j, job).must(t); r.exit.Code != 0 {
		t.Fatalf("%+v", r)
	}
	for _, path := range []string{tool, shell, helper} {
		r, err := j.Plan(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(f)
		f.Close()
		exit, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{})
		if bailey.KindOf(err) != bailey.Conflict || exit.Code != bailey.NeverRan || !strings.Contains(err.Error(), path) {
			t.Errorf("%s changed: %+v, %v", path, exit, err)
		}
		r.Close()
	}
}

// public returns a temporary directory that every user can reach, as a tool must be if the gateway is root.
func public(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for p := dir; p != filepath.Clean(os.TempDir()) && p != "/"; p = filepath.Dir(p) {
		os.Chmod(p, 0o755)
	}
	return dir
}
