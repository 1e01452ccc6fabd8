//go:build linux

package jail

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

func put(t testing.TB, path, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	os.Chmod(path, mode)
	return path
}

func TestSwapBetweenPlanAndStart(t *testing.T) {
	ktest.Long(t)
	for _, swap := range []struct {
		name string
		do   func(t *testing.T, work, evil string)
	}{
		{"symlink in its place", func(t *testing.T, work, evil string) { os.Symlink(evil, work) }},
		{"directory in its place", func(t *testing.T, work, evil string) { os.Rename(evil, work) }},
		{"gone", func(*testing.T, string, string) {}},
	} {
		t.Run(swap.name, func(t *testing.T) {
			root := t.TempDir()
			work, evil := filepath.Join(root, "work"), filepath.Join(root, "evil")
			mark := put(t, filepath.Join(work, "mark"), "checked ", 0o644)
			put(t, filepath.Join(evil, "mark"), "swapped ", 0o644)
			j := newJail(t, Config{})
			r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"show", mark}, Dir: work, Places: []bailey.Place{place(t, work, false)}})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if err := os.Rename(work, work+".old"); err != nil {
				t.Fatal(err)
			}
			swap.do(t, work, evil)
			var out strings.Builder
			_, err = r.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &out})
			if os.Geteuid() == 0 { // the descriptor itself is mounted
				if err != nil || out.String() != "checked ok\n" {
					t.Errorf("%q, %v", out.String(), err)
				}
			} else if bailey.KindOf(err) != bailey.Conflict || out.Len() > 0 {
				t.Errorf("%q, %v: what was swapped in was taken", out.String(), err)
			}
		})
	}
}

func TestToolChangedBetweenPlanAndStart(t *testing.T) {
	for name, change := range map[string]func(path string){
		"replaced": func(path string) {
			b, _ := os.ReadFile(path)
			os.WriteFile(path+".new", b, 0o755)
			os.Rename(path+".new", path)
		},
		"written": func(path string) {
			f, _ := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			f.WriteString("more")
			f.Close()
		},
	} {
		j := newJail(t, Config{})
		path := filepath.Join(t.TempDir(), "tool")
		copyFile(t, probe, path)
		r, err := j.Plan(t.Context(), bailey.Job{Command: path, Args: []string{"exit", "0"}})
		if err != nil {
			t.Fatal(err)
		}
		change(path)
		exit, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{})
		if r.Cage().Programs[0].Copied { // the hashed copy runs
			if err != nil || exit.Code != 0 {
				t.Errorf("%s: %+v, %v", name, exit, err)
			}
		} else if bailey.KindOf(err) != bailey.Conflict || exit.Code != -1 {
			t.Errorf("%s: %+v, %v", name, exit, err)
		}
		r.Close()
		again, err := j.Plan(t.Context(), bailey.Job{Command: path, Args: []string{"exit", "0"}})
		if err != nil {
			t.Fatal(err)
		}
		if again.Cage().BinaryDigest == r.Cage().BinaryDigest && name == "written" {
			t.Error("the digest of a changed tool came from memory")
		}
		again.Close()
	}
}

func TestMasks(t *testing.T) {
	ktest.Long(t)
	home := t.TempDir()
	work := filepath.Join(home, "work")
	key := put(t, filepath.Join(work, ".ssh", "id"), "secret", 0o644)
	token := put(t, filepath.Join(work, "token"), "secret", 0o644)
	dot := put(t, filepath.Join(work, "dotfiles", "aws", "credentials"), "secret", 0o644)
	note := put(t, filepath.Join(work, "note"), "plain", 0o644)
	os.Symlink("dotfiles/aws", filepath.Join(work, ".aws"))
	vault := put(t, filepath.Join(home, "vault", "deep", "x"), "secret", 0o644)
	j := newJail(t, Config{Mask: []string{filepath.Dir(key), token, filepath.Join(work, ".aws"), filepath.Join(home, "vault"), "/no/such/path"}})
	job := bailey.Job{Places: []bailey.Place{place(t, work, true)}}
	for _, c := range []struct{ verb, path, want string }{
		{"read", note, "ok"},
		{"read", key, "no such file or directory"},
		{"list", filepath.Dir(key), "ok"},
		{"read", token, "permission denied"},
		{"write", token, "permission denied"},
		{"read", dot, "no such file or directory"},
		{"read", filepath.Join(work, ".aws", "credentials"), "no such file or directory"},
		{"write", filepath.Join(work, ".ssh", "new"), "read-only file system"},
	} {
		r := ask(t, j, job, c.verb, c.path).must(t)
		if r.first() != c.want || c.verb == "list" && strings.Count(r.out, "\n") != 1 {
			t.Errorf("%s %s: %q, want %q", c.verb, c.path, r.out, c.want)
		}
	}
	for _, path := range []string{filepath.Join(home, "vault"), filepath.Dir(vault), vault, token} {
		if r := ask(t, j, bailey.Job{Places: []bailey.Place{place(t, path, false)}}, "exit", "0"); bailey.KindOf(r.err) != bailey.Denied {
			t.Errorf("%s was bound: %v", path, r.err)
		}
		if r := ask(t, j, bailey.Job{Command: probe, Args: []string{"exit", "0"}, Read: []string{path}}); bailey.KindOf(r.err) != bailey.Denied {
			t.Errorf("%s was shown: %v", path, r.err)
		}
	}
}

func TestPlacesThatAreRefused(t *testing.T) {
	j := newJail(t, Config{})
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/tmp", "/home", "/proc", "/proc/self", "/dev", "/dev/null", "/sys", fifo} {
		if !exists(path) {
			continue
		}
		real := place(t, dir, false)
		real.Path = path
		if path == fifo {
			real = place(t, fifo, false)
		}
		if r := ask(t, j, bailey.Job{Places: []bailey.Place{real}}, "exit", "0"); bailey.KindOf(r.err) != bailey.Denied {
			t.Errorf("%s: %v", path, r.err)
		}
	}
	for _, path := range []string{"", "relative", dir + "/", dir + "/../x", dir + "//x"} {
		p := place(t, dir, false)
		p.Path = path
		if r := ask(t, j, bailey.Job{Places: []bailey.Place{p}}, "exit", "0"); bailey.KindOf(r.err) != bailey.Invalid {
			t.Errorf("%q: %v", path, r.err)
		}
	}
	if r := ask(t, j, bailey.Job{Places: []bailey.Place{{Path: dir}}}, "exit", "0"); r.err == nil {
		t.Error("a place without a descriptor was bound")
	}
	if r := ask(t, j, bailey.Job{Dir: dir}, "exit", "0"); bailey.KindOf(r.err) != bailey.Invalid {
		t.Errorf("a directory outside the cage: %v", r.err)
	}
}

func TestPlacesTogether(t *testing.T) {
	j := newJail(t, Config{})
	root := t.TempDir()
	inner := filepath.Join(root, "out")
	file := put(t, filepath.Join(inner, "f"), "x", 0o644)
	nested := bailey.Job{Dir: inner, Places: []bailey.Place{place(t, inner, true), place(t, root, false), place(t, file, false)}}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(root, "new"), "read-only file system"},
		{filepath.Join(inner, "new"), "ok"},
		{"relative", "ok"},
		{file, "read-only file system"},
	} {
		if r := ask(t, j, nested, "write", c.path).must(t); r.first() != c.want {
			t.Errorf("%s: %q, want %q", c.path, r.first(), c.want)
		}
	}
	twice := bailey.Job{Places: []bailey.Place{place(t, root, false), place(t, root, true)}}
	if r := ask(t, j, twice, "write", filepath.Join(root, "new")).must(t); r.first() != "ok" {
		t.Errorf("bound for reading and for writing: %q", r.first())
	}
	other := place(t, inner, false)
	other.Path = root
	if r := ask(t, j, bailey.Job{Places: []bailey.Place{place(t, root, false), other}}, "exit", "0"); bailey.KindOf(r.err) != bailey.Conflict {
		t.Errorf("two things under one name: %v", r.err)
	}
}

func TestOwnersAreMapped(t *testing.T) {
	j := newJail(t, Config{})
	ids := [][2]int{{os.Geteuid(), os.Getegid()}}
	if os.Geteuid() == 0 {
		ids = append(ids, [2]int{stranger, stranger + 1})
	}
	for _, id := range ids {
		dir := t.TempDir()
		file := put(t, filepath.Join(dir, "private"), "x", 0o600)
		made := filepath.Join(dir, "made")
		for _, p := range []string{dir, file} {
			if err := os.Chown(p, id[0], id[1]); err != nil {
				t.Fatal(err)
			}
		}
		os.Chmod(dir, 0o700)
		job := bailey.Job{Places: []bailey.Place{place(t, dir, true)}}
		if r := ask(t, j, job, "stat", file).must(t); r.out != "ok\n1000 1000\n" {
			t.Errorf("a file of %v appears as %q", id, r.out)
		}
		if r := ask(t, j, job, "read", file).must(t); r.first() != "ok" {
			t.Errorf("a private file of %v: %q", id, r.first())
		}
		if r := ask(t, j, job, "write", made).must(t); r.first() != "ok" {
			t.Fatalf("a new file for %v: %q", id, r.first())
		}
		var st unix.Stat_t
		if err := unix.Stat(made, &st); err != nil || int(st.Uid) != id[0] || int(st.Gid) != id[1] {
			t.Errorf("a new file belongs to %d:%d, want %v (%v)", st.Uid, st.Gid, id, err)
		}
	}
}

func TestToolsThatAreRefused(t *testing.T) {
	j := newJail(t, Config{})
	dir := t.TempDir()
	plain := put(t, filepath.Join(dir, "plain"), "#!/bin/sh\n", 0o644)
	junk := put(t, filepath.Join(dir, "junk"), "\x7fELF and no more", 0o755)
	words := put(t, filepath.Join(dir, "words"), "echo hello\n", 0o755)
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o755); err != nil {
		t.Fatal(err)
	}
	for command, kind := range map[string]bailey.Kind{
		plain: bailey.Unavailable, junk: bailey.Unavailable, words: bailey.Unavailable, fifo: bailey.Unavailable, dir: bailey.Unavailable,
		"no-such-program": bailey.Unavailable, "/no/such": bailey.Unavailable, "": bailey.Invalid, "a/b": bailey.Invalid, "../x": bailey.Invalid,
	} {
		_, err := j.Plan(t.Context(), bailey.Job{Command: command})
		if bailey.KindOf(err) != kind {
			t.Errorf("%q: %v, want %v", command, err, kind)
		}
	}
	if _, err := j.Plan(t.Context(), bailey.Job{Command: probe, Exec: []string{plain}}); err == nil {
		t.Error("a file that is not executable was taken for a helper")
	}
	inside := filepath.Join(dir, "tool")
	copyFile(t, probe, inside)
	started := put(t, filepath.Join(t.TempDir(), "script"), "#!"+inside+"\n", 0o755)
	for _, job := range []bailey.Job{{Command: inside}, {Command: started}, {Command: probe, Exec: []string{inside}}} {
		job.Places = []bailey.Place{place(t, dir, true)}
		if _, err := j.Plan(t.Context(), job); bailey.KindOf(err) != bailey.Denied || !strings.Contains(err.Error(), inside) {
			t.Errorf("%s, %v: what is executed lies in a writable workspace: %v", job.Command, job.Exec, err)
		}
	}
	if _, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"a\x00b"}}); bailey.KindOf(err) != bailey.Invalid {
		t.Errorf("a NUL in an argument: %v", err)
	}
}

func TestHugeArguments(t *testing.T) {
	j := newJail(t, Config{})
	many := make([]string, 0, 100)
	for range 100 {
		many = append(many, strings.Repeat("x", 100<<10))
	}
	if r := ask(t, j, bailey.Job{Command: probe, Args: many}); bailey.KindOf(r.err) != bailey.Invalid {
		t.Errorf("10 MB of arguments: %v", r.err)
	}
	if r := ask(t, j, bailey.Job{Command: probe, Args: many[:60]}); r.err == nil || r.exit.Code != -1 || errors.Is(r.err, bailey.Internal) {
		t.Errorf("6 MB of arguments: %+v", r)
	}
	if r := ask(t, j, bailey.Job{}, "sees", strings.Repeat("y", 100<<10)).must(t); !strings.Contains(r.out, strings.Repeat("y", 100<<10)) {
		t.Error("100 KB of argument did not arrive")
	}
}

func TestHostUIDMustBeUsable(t *testing.T) {
	ktest.Require(t, "root")
	for _, uid := range []int{-1, 65534, 1<<32 - 1} {
		if _, err := New(Config{HostUID: uid}); bailey.KindOf(err) != bailey.Unavailable {
			t.Errorf("uid %d: %v", uid, err)
		}
	}
	if _, err := New(Config{Mask: []string{"relative"}}); bailey.KindOf(err) != bailey.Invalid {
		t.Error("a relative mask was taken")
	}
}

// TestMasksTogether checks that a mask below another, or through a symlinked directory, does not make a call fail. The
// parents of a mask in a writable place must be writable but not movable.
func TestMasksTogether(t *testing.T) {
	ktest.Long(t)
	work := t.TempDir()
	inner := put(t, filepath.Join(work, "a", "b", "c", "x"), "secret", 0o644)
	hidden := put(t, filepath.Join(work, "real", "x"), "secret", 0o644)
	os.Symlink("real", filepath.Join(work, "link"))
	b, c := filepath.Join(work, "a", "b"), filepath.Join(work, "a", "b", "c")
	j := newJail(t, Config{Mask: []string{c, filepath.Join(c, "x"), filepath.Join(work, "link", "x")}})
	job := bailey.Job{Places: []bailey.Place{place(t, work, true)}}
	for _, s := range []struct{ verb, path, want string }{
		{"read", inner, "no such file or directory"},
		{"read", hidden, "permission denied"},
		{"write", filepath.Join(b, "new"), "ok"},
		{"move", c, "device or resource busy"},
		{"move", b, "device or resource busy"},
		{"move", filepath.Dir(b), "device or resource busy"},
		{"move", filepath.Join(b, "new"), "ok"},
	} {
		if r := ask(t, j, job, s.verb, s.path).must(t); r.first() != s.want {
			t.Errorf("%s %s: %q, want %q", s.verb, s.path, r.first(), s.want)
		}
	}
	if _, err := os.Stat(filepath.Join(b, "new.moved")); err != nil {
		t.Error(err)
	}
}
