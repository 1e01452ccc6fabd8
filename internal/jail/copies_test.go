//go:build linux

package jail

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// loosen gives a file to an ordinary user if this process is root. Otherwise it belongs to one already.
func loosen(t testing.TB, path string) string {
	t.Helper()
	if os.Geteuid() == 0 {
		if err := os.Chown(path, stranger, strangers); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestCopiedToolRunsAsHashed checks that an ordinary user's tool runs as it was hashed, whatever happens to its file.
func TestCopiedToolRunsAsHashed(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "/bin/sh")
	j := newJail(t, Config{})
	for name, change := range map[string]func(path string) error{
		"written over": func(p string) error { return os.WriteFile(p, []byte("#!/bin/sh\necho two\n"), 0o755) },
		"replaced": func(p string) error {
			return errors.Join(os.Remove(p), os.WriteFile(p, []byte("#!/bin/sh\necho two\n"), 0o755))
		},
		"truncated":     func(p string) error { return os.Truncate(p, 0) },
		"gone":          os.Remove,
		"out of reach":  func(p string) error { return os.Chmod(p, 0) },
		"left in peace": func(string) error { return nil },
	} {
		path := loosen(t, put(t, filepath.Join(public(t), "tool"), "#!/bin/sh\necho one\n", 0o755))
		digest := sum(t, path)
		r, err := j.Plan(t.Context(), bailey.Job{Command: path})
		if err != nil {
			t.Fatal(err)
		}
		if p := r.Cage().Programs[0]; p != (bailey.Program{Path: path, SHA256: digest, Copied: true}) {
			t.Errorf("%s: %+v", name, p)
		}
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if _, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &out}); err != nil || out.String() != "one\n" {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
		r.Close()
		if name != "written over" {
			continue
		}
		if r := ask(t, j, bailey.Job{Command: path}).must(t); r.first() != "two" {
			t.Errorf("the next call runs %q", r.out)
		}
	}
}

// TestWhatIsCopied checks that a file is copied if others than root can write it or a directory on its path.
func TestWhatIsCopied(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	for name, c := range map[string]struct {
		prepare func(dir, path string) error
		copied  bool
	}{
		"root's own":            {func(string, string) error { return nil }, os.Geteuid() != 0},
		"writable for all":      {func(_, path string) error { return os.Chmod(path, 0o777) }, true},
		"in a directory of all": {func(dir, _ string) error { return os.Chmod(dir, 0o777) }, true},
		"set-id":                {func(_, path string) error { return os.Chmod(path, 0o755|os.ModeSetuid|os.ModeSetgid) }, os.Geteuid() != 0},
	} {
		dir := public(t)
		path := filepath.Join(dir, "tool")
		copyFile(t, probe, path)
		if err := c.prepare(dir, path); err != nil {
			t.Fatal(err)
		}
		r, err := j.Plan(t.Context(), bailey.Job{Command: path, Args: []string{"sees"}})
		if err != nil {
			t.Fatal(err)
		}
		if p := r.Cage().Programs[0]; p.Copied != c.copied {
			t.Errorf("%s: %+v", name, p)
		}
		var out strings.Builder
		if _, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &out}); err != nil || !strings.Contains(out.String(), `"euid":1000`) {
			t.Errorf("%s: %v, %s", name, err, out.String())
		}
		r.Close()
	}
}

// TestCopyIsReadOnlyInside checks that the tool cannot write its copy, under either of its names.
func TestCopyIsReadOnlyInside(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	path := filepath.Join(public(t), "tool")
	copyFile(t, probe, path)
	loosen(t, path)
	work := public(t)
	for _, c := range []struct{ verb, path, want string }{
		{"write", path, "read-only file system"},
		{"write", copyDir + "/0", "read-only file system"},
		{"write", copyDir + "/new", "read-only file system"},
		{"read", path, "ok"},
	} {
		job := bailey.Job{Command: path, Args: []string{c.verb, c.path}, Places: []bailey.Place{place(t, work, true)}}
		if r := ask(t, j, job).must(t); r.first() != c.want {
			t.Errorf("%s %s: %q, want %q", c.verb, c.path, r.out, c.want)
		}
	}
	if r := ask(t, j, bailey.Job{}, "list", "/").must(t); os.Geteuid() == 0 && strings.Contains(r.out, copyDir[1:]) {
		t.Errorf("a cage without copies has a place for them: %s", r.out)
	}
}

// TestCopiedToolInAPlace checks that a tool in a read-only workspace is shown as it was hashed.
func TestCopiedToolInAPlace(t *testing.T) {
	ktest.Require(t, "/bin/sh")
	j := newJail(t, Config{})
	work := public(t)
	path := loosen(t, put(t, filepath.Join(work, "bin", "tool"), "#!/bin/sh\nread line < "+work+"/note; echo $line\n", 0o755))
	put(t, filepath.Join(work, "note"), "hello\n", 0o644)
	if r := ask(t, j, bailey.Job{Command: path, Places: []bailey.Place{place(t, work, false)}}).must(t); r.first() != "hello" {
		t.Errorf("%+v", r)
	}
	if r := ask(t, j, bailey.Job{Command: path, Places: []bailey.Place{place(t, path, false), place(t, work, false)}}).must(t); r.first() != "hello" {
		t.Errorf("with the tool as an input: %+v", r)
	}
}

// TestCopiedLibrary checks that libraries are copied like programs.
func TestCopiedLibrary(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "cc")
	j := newJail(t, Config{})
	dir := public(t)
	lib, main := filepath.Join(dir, "libone.so"), filepath.Join(dir, "main")
	put(t, lib+".c", "int one(void) { return 7; }\n", 0o644)
	put(t, main+".c", "int one(void); int main(void) { return one(); }\n", 0o644)
	for _, args := range [][]string{{"-shared", "-fPIC", "-o", lib, lib + ".c"}, {"-o", main, main + ".c", lib, "-Wl,-rpath," + dir}} {
		if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%s", out)
		}
	}
	os.Chmod(lib, 0o755)
	os.Chmod(main, 0o755)
	loosen(t, lib)
	r, err := j.Plan(t.Context(), bailey.Job{Command: main})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	listed := r.Cage().Programs[len(r.Cage().Programs)-1]
	if want := (bailey.Program{Path: lib, SHA256: sum(t, lib), Copied: true}); listed != want && os.Geteuid() == 0 {
		t.Errorf("%+v, want %+v", listed, want)
	}
	if err := os.Truncate(lib, 0); err != nil {
		t.Fatal(err)
	}
	if exit, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{}); err != nil || exit.Code != 7 {
		t.Errorf("%+v, %v", exit, err)
	}
}

func TestCopiesAreSealed(t *testing.T) {
	var c copies
	defer c.removeAll()
	path := put(t, filepath.Join(public(t), "f"), "text", 0o644)
	held := take(t, &c, path)
	if b := make([]byte, 4); held.digest != sum(t, path) || held.size != 4 {
		t.Errorf("%+v", held)
	} else if n, err := held.file.ReadAt(b, 0); n != 4 || string(b) != "text" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := held.file.WriteAt([]byte("evil"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("written: %v", err)
	}
	if err := held.file.Truncate(0); !errors.Is(err, unix.EPERM) {
		t.Errorf("truncated: %v", err)
	}
	if _, err := unix.FcntlInt(held.file.Fd(), unix.F_ADD_SEALS, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("the seals are not sealed: %v", err)
	}
	if again := take(t, &c, path); again != held {
		t.Error("an unchanged file was copied twice")
	}
	put(t, path, "more text", 0o644)
	if other := take(t, &c, path); other == held || other.size != 9 {
		t.Errorf("a changed file came from memory: %+v", other)
	}
	if _, err := c.acquireCopy(path, ident{ino: 1}); bailey.KindOf(err) != bailey.Conflict {
		t.Errorf("another file than was asked for: %v", err)
	}
	if c.total != 13 {
		t.Errorf("%d bytes are counted", c.total)
	}
}

func take(t *testing.T, c *copies, path string) *copied {
	t.Helper()
	id, err := statIdent(path)
	if err != nil {
		t.Fatal(err)
	}
	held, err := c.acquireCopy(path, id)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// TestCopiesAreBounded checks that the least recently used copy is dropped, one in use is kept, and a file that is too
// large is refused.
func TestCopiesAreBounded(t *testing.T) {
	c := copies{limit: 10}
	defer c.removeAll()
	dir := public(t)
	file := func(name string, size int) string {
		return put(t, filepath.Join(dir, name), strings.Repeat("x", size), 0o644)
	}
	a, b := take(t, &c, file("a", 4)), take(t, &c, file("b", 4))
	id, _ := statIdent(file("c", 4))
	if _, err := c.acquireCopy(filepath.Join(dir, "c"), id); bailey.KindOf(err) != bailey.Unavailable || !strings.Contains(err.Error(), "running calls") {
		t.Errorf("with all in use: %v", err)
	}
	c.releaseCopy(b)
	c.releaseCopy(a)
	c.releaseCopy(take(t, &c, filepath.Join(dir, "a"))) // b is now the least recently used
	c.releaseCopy(take(t, &c, filepath.Join(dir, "c")))
	if c.acquireIfHeld(mustIdent(t, filepath.Join(dir, "b"))) != nil || c.acquireIfHeld(mustIdent(t, filepath.Join(dir, "a"))) == nil || c.total != 8 {
		t.Errorf("%d bytes of %v are held", c.total, c.held)
	}
	id, _ = statIdent(file("large", 11))
	if _, err := c.acquireCopy(filepath.Join(dir, "large"), id); bailey.KindOf(err) != bailey.Unavailable || !strings.Contains(err.Error(), "11 bytes") {
		t.Errorf("one too large: %v", err)
	}
	if c.total != 8 {
		t.Errorf("a refusal left %d bytes counted", c.total)
	}
}

func mustIdent(t *testing.T, path string) ident {
	t.Helper()
	id, err := statIdent(path)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestCopiesTogether takes and releases copies from many goroutines under a small limit. At the end, the counted bytes
// must equal those held.
func TestCopiesTogether(t *testing.T) {
	c := copies{limit: 3000}
	dir := public(t)
	for i := range 8 {
		put(t, filepath.Join(dir, fmt.Sprint(i)), strings.Repeat("x", 500+i), 0o644)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for k := range 50 {
				path := filepath.Join(dir, fmt.Sprint((i+k)%8))
				id, _ := statIdent(path)
				held, err := c.acquireCopy(path, id)
				if err != nil {
					if bailey.KindOf(err) != bailey.Unavailable {
						t.Error(err)
					}
					continue
				}
				if _, err := held.file.ReadAt(make([]byte, 1), id.size-1); err != nil {
					t.Error(err)
				}
				c.releaseCopy(held)
			}
		})
	}
	wg.Wait()
	total := int64(0)
	for _, held := range c.held {
		total += held.size
	}
	if c.total != total || total > c.limit || total == 0 {
		t.Errorf("%d bytes counted, %d held", c.total, total)
	}
	if c.removeAll(); c.total != 0 || len(c.held) != 0 {
		t.Errorf("after close %d bytes are counted", c.total)
	}
}

// TestManyCopies checks that a call that needs more copies than the kernel passes at once is refused with this reason.
func TestManyCopies(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "/bin/sh")
	j := newJail(t, Config{})
	dir := public(t)
	job := bailey.Job{Command: "true"}
	for i := range maxDonations + 1 {
		job.Exec = append(job.Exec, loosen(t, put(t, filepath.Join(dir, fmt.Sprint(i)), "#!/bin/sh\n# "+fmt.Sprint(i)+"\n", 0o755)))
	}
	if r := ask(t, j, job); bailey.KindOf(r.err) != bailey.Unavailable || !strings.Contains(r.err.Error(), "copies of files") {
		t.Errorf("%v", r.err)
	}
	job.Exec = job.Exec[:maxDonations]
	if r := ask(t, j, job); bailey.KindOf(r.err) != bailey.Invalid || !strings.Contains(r.err.Error(), "ledger") {
		t.Errorf("a plan of %d copies: %v", maxDonations, r.err)
	}
	job.Exec = job.Exec[:64]
	if r := ask(t, j, job).must(t); r.exit.Code != 0 {
		t.Errorf("%+v", r)
	}
}
