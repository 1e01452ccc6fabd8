//go:build linux

package jail

import (
	"bytes"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// TestEditions checks that each edition of Landlock handles at least the rights of the one before, and that handled and
// missing rights together are always the same. A kernel newer than this table must lack nothing.
func TestEditions(t *testing.T) {
	all := bits.OnesCount64(mayIoctlDev<<1-1) + len(portRights) + len(scopes)
	var before ruleset
	for abi := range len(editions) + 3 {
		r, lacks := supportedRuleset(abi)
		if n := len(r.rightNames()) + len(lacks); n != all {
			t.Errorf("ABI %d: %d handled and lacking, want %d", abi, n, all)
		}
		if r.files&before.files != before.files || r.ports&before.ports != before.ports || r.scoped&before.scoped != before.scoped {
			t.Errorf("ABI %d handles less than ABI %d", abi, abi-1)
		}
		if grew := r != before; grew != (abi >= 1 && abi <= len(editions)) {
			t.Errorf("ABI %d: grew is %t", abi, grew)
		}
		for _, name := range r.rightNames() {
			if slices.Contains(lacks, "landlock "+name) {
				t.Errorf("ABI %d: %s is handled and lacking", abi, name)
			}
		}
		before = r
	}
	if _, lacks := supportedRuleset(4); !slices.Equal(lacks, []string{"landlock ioctl-dev", "landlock scope-abstract-unix-socket", "landlock scope-signal"}) {
		t.Errorf("ABI 4 lacks %v", lacks)
	}
}

// TestRulesFitTheRuleset checks for every edition that each rule has at least one right (ENOMSG) and only rights that
// its ruleset handles (EINVAL).
func TestRulesFitTheRuleset(t *testing.T) {
	for abi := 1; abi <= len(editions)+1; abi++ {
		r, _ := supportedRuleset(abi)
		p := &plan{}
		sample().addLandlockSteps(p, abi)
		for _, s := range p.steps {
			if len(s.S) == 1 && (s.N[0] == 0 || s.N[0]&^r.files != 0) {
				t.Errorf("ABI %d: %s", abi, s.formatLine())
			}
		}
	}
	p := &plan{}
	if sample().addLandlockSteps(p, 0); len(p.steps) != 0 {
		t.Error("there is a ruleset without Landlock")
	}
}

// TestLandlockByItsEffects tries operations that only Landlock denies. They must succeed in the same cage without it.
func TestLandlockByItsEffects(t *testing.T) {
	ktest.Require(t, "landlock", "cat")
	dir, err := os.MkdirTemp("/var/tmp", "bailey-test-") // not below the cage's own /tmp, whose rights would apply
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o755)
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	os.Chmod(fifo, 0o666)
	reader, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	j := newJail(t, Config{})
	cat, err := j.tools.findTool("cat")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(cat.files, func(f toolFile) bool { return strings.Contains(f.path, "libc.") })
	if i < 0 {
		ktest.Missing(t, "libc", os.ErrNotExist)
	}
	for _, c := range []struct {
		name string
		args []string
	}{
		{"a FIFO in a place that is only read", []string{"write", fifo}},
		{"a library run as a program", []string{"exec", cat.files[i].path}},
	} {
		job := bailey.Job{Command: probe, Args: c.args, Exec: []string{"/bin/cat"}, Places: []bailey.Place{place(t, dir, false)}}
		run := func(with bool) (string, int) {
			planned, err := j.Plan(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			defer planned.Close()
			if p := planned.(*run).plan; !with {
				p.steps = slices.DeleteFunc(p.steps, func(s step) bool { return s.layer == "landlock" })
			}
			var out bytes.Buffer
			exit, err := planned.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &out, Stderr: &out})
			if err != nil {
				t.Fatal(err)
			}
			return out.String(), exit.Code
		}
		got := slices.DeleteFunc(planCage(t, j, job).Lacks, func(l string) bool { return !strings.HasPrefix(l, "landlock ") })
		if _, lacks := supportedRuleset(j.landlock); !slices.Equal(got, lacks) {
			t.Errorf("%s: the cage lacks %v", c.name, got)
		}
		if out, code := run(true); !strings.Contains(out, "permission denied") {
			t.Errorf("%s: %d, %q", c.name, code, out)
		}
		if out, code := run(false); code != 0 || strings.Contains(out, "denied") {
			t.Errorf("%s: without Landlock %d, %q: this test cannot fail", c.name, code, out)
		}
	}
}

// TestPipesBeneathTmp checks that the cage reports a gap if a read-only place lies below its /tmp, whose rights also
// apply there.
func TestPipesBeneathTmp(t *testing.T) {
	ktest.Require(t, "landlock")
	dir := t.TempDir()
	if !containsPath(tmpDir, dir) {
		t.Skip("temporary files are elsewhere: TMPDIR")
	}
	j := newJail(t, Config{})
	for write, want := range map[bool]bool{false: true, true: false} {
		got := planCage(t, j, bailey.Job{Command: probe, Places: []bailey.Place{place(t, dir, write)}}).Lacks
		if slices.Contains(got, pipesBeneath) != want {
			t.Errorf("a place that is written (%t) beneath /tmp: the cage lacks %v", write, got)
		}
	}
}

func planCage(t *testing.T, j *Jail, job bailey.Job) bailey.Cage {
	t.Helper()
	planned, err := j.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	return planned.Cage()
}
