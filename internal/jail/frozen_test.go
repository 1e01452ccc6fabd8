//go:build linux

package jail

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// frozenPlace returns a file with a snapshot, as taken when a person is asked for approval.
func frozenPlace(t testing.TB, path, content string) bailey.Place {
	t.Helper()
	memory, err := createMemfd()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close() })
	if _, err := io.WriteString(memory, content); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS, sealed); err != nil {
		t.Fatal(err)
	}
	p := place(t, path, false)
	p.Frozen = &bailey.Frozen{File: memory, Size: int64(len(content)), SHA256: bailey.NewSecret(fmt.Sprintf("%x", sha256.Sum256([]byte(content))))}
	return p
}

func said(t testing.TB, r bailey.Run) string {
	t.Helper()
	var out strings.Builder
	if _, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestFrozenFileIsWhatTheToolReads checks that the tool reads the snapshot, whatever happened to the file or its path.
func TestFrozenFileIsWhatTheToolReads(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	for name, change := range map[string]func(path string) error{
		"left in peace": func(string) error { return nil },
		"written over":  func(p string) error { return os.WriteFile(p, []byte("evil"), 0o644) },
		"grown": func(p string) error {
			f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString("evil")
				f.Close()
			}
			return err
		},
		"truncated": func(p string) error { return os.Truncate(p, 0) },
		"replaced": func(p string) error {
			os.WriteFile(p+".new", []byte("evil"), 0o644)
			return os.Rename(p+".new", p)
		},
		"a link": func(p string) error {
			os.WriteFile(p+".new", []byte("evil"), 0o644)
			os.Remove(p)
			return os.Symlink(p+".new", p)
		},
		"gone":   os.Remove,
		"a pipe": func(p string) error { os.Remove(p); return unix.Mkfifo(p, 0o644) },
	} {
		path := put(t, filepath.Join(t.TempDir(), "file"), "harmless", 0o644)
		r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"show", path}, Places: []bailey.Place{frozenPlace(t, path, "harmless")}})
		if err != nil {
			t.Fatal(name, err)
		}
		if err := change(path); err != nil {
			t.Fatal(name, err)
		}
		if out := said(t, r); out != "harmlessok\n" {
			t.Errorf("%s: %q", name, out)
		}
		r.Close()
	}
}

// TestFrozenFileIsInert checks that a snapshot can only be read, under either of its names.
func TestFrozenFileIsInert(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	path := filepath.Join(t.TempDir(), "file")
	program, err := os.ReadFile(probe)
	if err != nil {
		t.Fatal(err)
	}
	put(t, path, string(program), 0o755)
	for _, name := range []string{path, frozenDir + "/0"} {
		for _, verb := range []string{"write", "move", "exec"} {
			job := bailey.Job{Places: []bailey.Place{frozenPlace(t, path, string(program))}}
			r := ask(t, j, job, verb, name).must(t)
			if !strings.Contains(r.out, "denied") && !strings.Contains(r.out, "read-only") && !strings.Contains(r.out, "not permitted") && !strings.Contains(r.out, "busy") {
				t.Errorf("%s %s: %q", verb, name, r.out)
			}
		}
	}
}

// TestFrozenFileIsServedOnce checks that two calls with the same plan each get their own snapshot, and no helper keeps
// one.
func TestFrozenFileIsServedOnce(t *testing.T) {
	ktest.Require(t, "userns", "netns")
	j := plainJail(t, Config{})
	dir, err := os.MkdirTemp("/var/tmp", "jail-frozen-") // a path that a helper could serve
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	path := put(t, filepath.Join(dir, "file"), "x", 0o644)
	digests := map[string]bool{}
	for i := range 6 {
		content := fmt.Sprint("call ", i)
		r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"show", path}, Places: []bailey.Place{frozenPlace(t, path, content)}})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Warm()) > 0 {
			t.Error("a helper would serve it")
		}
		digests[r.Cage().PlanDigest] = true
		if strings.Contains(r.Cage().Plan, sha(content)) {
			t.Error("the plan, which is kept in clear, tells what the file held")
		}
		if out := said(t, r); out != content+"ok\n" {
			t.Errorf("%q in place of %q", out, content)
		}
		r.Close()
	}
	if len(digests) != 1 {
		t.Errorf("%d plans of one job: a call that comes back would be another", len(digests))
	}
}

func sha(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }

// TestFrozenRefusals checks that a snapshot is refused if it is not sealed, differs from its description, or could be
// replaced.
func TestFrozenRefusals(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	dir := t.TempDir()
	path := put(t, filepath.Join(dir, "file"), "harmless", 0o644)
	open := frozenPlace(t, path, "harmless")
	unsealed, err := createMemfd()
	if err != nil {
		t.Fatal(err)
	}
	defer unsealed.Close()
	unsealed.WriteString("harmless")
	open.Frozen = &bailey.Frozen{File: unsealed, Size: 8}
	short := frozenPlace(t, path, "harmless")
	short.Frozen = &bailey.Frozen{File: short.Frozen.File, Size: 7}
	written := frozenPlace(t, path, "harmless")
	written.Write = true
	of := place(t, dir, false)
	of.Frozen = open.Frozen
	for name, places := range map[string][]bailey.Place{
		"unsealed":                 {open},
		"another size":             {short},
		"written":                  {written},
		"a directory":              {of},
		"written in another input": {frozenPlace(t, path, "harmless"), place(t, path, true)},
		"other content in another": {frozenPlace(t, path, "harmless"), frozenPlace(t, path, "harmful!")},
		"not frozen in another":    {place(t, path, false), frozenPlace(t, path, "harmless")},
		"in another place":         {place(t, dir, false), frozenPlace(t, path, "harmless")},
	} {
		r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Places: places})
		if err == nil {
			r.Close()
			t.Errorf("%s was planned", name)
		}
	}
	masked := newJail(t, Config{Mask: []string{path}})
	if _, err := masked.Plan(t.Context(), bailey.Job{Command: probe, Places: []bailey.Place{frozenPlace(t, path, "harmless")}}); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("a masked file: %v", err)
	}
	p := frozenPlace(t, path, "harmless")
	q := p
	q.Input = "other"
	if r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"show", path}, Places: []bailey.Place{p, q}}); err != nil {
		t.Errorf("one copy in two inputs: %v", err)
	} else if out := said(t, r); out != "harmlessok\n" {
		t.Error(out)
	} else {
		r.Close()
	}
}
