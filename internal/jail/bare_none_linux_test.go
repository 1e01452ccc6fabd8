package jail

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// These tests start harmless programs of the system without a cage.

func newNone(t *testing.T, mask ...string) *None {
	t.Helper()
	n, err := NewNone(Config{Mask: mask})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func runNone(t *testing.T, n *None, job bailey.Job) *ranBare {
	t.Helper()
	planned, err := n.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	r := &ranBare{}
	begun := time.Now()
	r.exit, r.err = planned.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &r.stdout, Stderr: &r.stderr})
	r.took = time.Since(begun)
	return r
}

// TestNoneSaysSo checks that the receipt of a run without a cage names no layer, claims nothing, and pins the program.
func TestNoneSaysSo(t *testing.T) {
	planned, err := newNone(t).Plan(t.Context(), bailey.Job{Command: "cat"})
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	c := planned.Cage()
	file, err := os.ReadFile(c.Binary)
	sum := sha256.Sum256(file)
	if digest := hex.EncodeToString(sum[:]); err != nil || c.BinaryDigest != digest || !slices.Equal(c.Programs, []bailey.Program{{Path: c.Binary, SHA256: digest}}) {
		t.Errorf("the programs are %+v, %v", c, err)
	}
	text, err := json.Marshal(c)
	if err != nil || c.Kind != bailey.Uncaged || !bytes.Contains(text, []byte(`"sandboxEnforced":false`)) || bytes.Contains(text, []byte("ayers")) || bytes.Contains(text, []byte("planDigest")) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestNoneInheritsNothing checks that the program has the gateway's user, but not its environment, descriptors or
// session.
func TestNoneInheritsNothing(t *testing.T) {
	t.Setenv("BAILEY_TEST_OUTSIDE", "seen")
	t.Setenv("PATH", "/nowhere")
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	loose, err := syscall.Dup(int(f.Fd())) // without close-on-exec (dup(2))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(loose)
	n := newNone(t)
	r := runNone(t, n, bailey.Job{Command: "env", Env: []string{"DECLARED=yes"}})
	var names []string
	for line := range strings.Lines(r.stdout.String()) {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"DECLARED", "HOME", "LANG", "LC_ALL", "PATH", "TZ", "USER"}; r.err != nil || !slices.Equal(names, want) {
		t.Errorf("%q, %v, want %q", names, r.err, want)
	}
	r = runNone(t, n, shell(`id -u; for fd in /proc/$$/fd/*; do echo "fd ${fd##*/}"; done; cut -d' ' -f1,5,6,7 /proc/$$/stat`))
	lines := strings.Split(strings.TrimSpace(r.stdout.String()), "\n")
	if r.err != nil || lines[0] != strconv.Itoa(os.Geteuid()) || slices.Contains(lines, "fd "+strconv.Itoa(loose)) || !slices.Contains(lines, "fd 1") {
		t.Errorf("%q, %v: descriptor %d was open here", lines, r.err, loose)
	}
	if w := strings.Fields(lines[len(lines)-1]); len(w) != 4 || w[0] != w[1] || w[1] != w[2] || w[3] != "0" {
		t.Errorf("process, group, session and terminal are %q", w)
	}
}

// TestNoneRunsWhereItWasChecked checks that the program runs in the directory that was opened, and not if that has
// moved.
func TestNoneRunsWhereItWasChecked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "project")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	place := openPlace(t, dir)
	place.Write = true
	n := newNone(t)
	job := bailey.Job{Command: "sh", Args: []string{"-c", "pwd -P; echo made >here"}, Places: []bailey.Place{place}, Dir: place.Path}
	r := runNone(t, n, job)
	if _, err := os.Stat(filepath.Join(dir, "here")); r.err != nil || err != nil || strings.TrimSpace(r.stdout.String()) != place.Path {
		t.Errorf("%q, %v, %v", r.stdout.String(), r.err, err)
	}
	planned, err := n.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	if err := errors.Join(os.Rename(dir, dir+"2"), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if exit, err := planned.Start(t.Context(), bailey.Lent{}, bailey.Streams{}); !errors.Is(err, bailey.Conflict) || exit.Code != bailey.NeverRan {
		t.Errorf("another directory of its name: %+v, %v", exit, err)
	}
	if info, err := os.Stat(bareDir(place)); err != nil || !mustSame(t, info, dir+"2") {
		t.Errorf("the place leads to another directory than was opened: %v", err)
	}
}

func mustSame(t *testing.T, a os.FileInfo, path string) bool {
	t.Helper()
	b, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(a, b)
}

// TestNoneLeavesNothing checks that all processes of a program end with it, at its timeout or its own end, even if they
// ignore SIGTERM, have their own process group, or are stopped.
func TestNoneLeavesNothing(t *testing.T) {
	ktest.Require(t, "bash")
	brood := `trap '' TERM
set -m # each job in a process group of its own, in this session (setpgid(2))
sleep 300 & echo $!
(trap '' TERM; sleep 300) & echo $!
sleep 300 & kill -STOP $!; echo $!
set +m
sleep 300 & echo $!
`
	for name, last := range map[string]string{"time is up": "while :; do sleep 300; done", "it ends": "exit 0"} {
		t.Run(name, func(t *testing.T) {
			n, err := NewNone(Config{Grace: short})
			if err != nil {
				t.Fatal(err)
			}
			job := bailey.Job{Command: "bash", Args: []string{"-c", brood + last}, Timeout: time.Minute}
			var r *ranBare
			var pids []string
			if call := func() bool { r = runNone(t, n, job); pids = strings.Fields(r.stdout.String()); return len(pids) == 4 }; last == "exit 0" {
				call()
			} else {
				inMidst(t, func(timeout time.Duration) bool { job.Timeout = timeout; return call() })
			}
			if r.err != nil || r.exit.TimedOut != (last != "exit 0") || len(pids) != 4 || r.took > time.Minute {
				t.Fatalf("%q, %+v, %v after %v\n%s", pids, r.exit, r.err, r.took, r.stderr.String())
			}
			groups := map[string]bool{}
			for _, word := range pids {
				pid, err := strconv.Atoi(word)
				if err != nil {
					t.Fatal(err)
				}
				groups[word] = true
				for i := 0; syscall.Kill(pid, 0) != syscall.ESRCH && !zombie(pid); i++ {
					if i == 3000 {
						syscall.Kill(pid, syscall.SIGKILL)
						t.Errorf("process %d lives", pid)
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
			}
			if len(groups) != 4 {
				t.Errorf("the test looks at %d processes", len(groups))
			}
		})
	}
}

// TestNoneIsMetered checks that processor time is counted against the budget.
func TestNoneIsMetered(t *testing.T) {
	ktest.Long(t)
	planned, err := newNone(t).Plan(t.Context(), shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"))
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	if _, err := planned.Start(t.Context(), bailey.Lent{}, bailey.Streams{}); err != nil {
		t.Fatal(err)
	}
	if planned.CPU() < 10*time.Millisecond {
		t.Errorf("it used %v", planned.CPU())
	}
}

// TestNoneRefuses checks that a job is refused if it needs a cage, if a cage would hide one of its files, or if others
// than root can write its program.
func TestNoneRefuses(t *testing.T) {
	dir := t.TempDir()
	secret, own := filepath.Join(dir, "secret"), filepath.Join(dir, "own")
	if err := errors.Join(os.Mkdir(secret, 0o700), os.WriteFile(own, []byte("\x7fELF"), 0o755), os.Chmod(own, 0o777)); err != nil {
		t.Fatal(err)
	}
	real := openPlace(t, dir)
	n := newNone(t, filepath.Join(real.Path, "secret"))
	cat := func(change func(*bailey.Job)) bailey.Job {
		job := bailey.Job{Command: "cat"}
		change(&job)
		return job
	}
	for name, c := range map[string]struct {
		job  bailey.Job
		kind bailey.Kind
	}{
		"a network":        {cat(func(j *bailey.Job) { j.Network = &bailey.Network{} }), bailey.Internal},
		"a wall":           {cat(func(j *bailey.Job) { j.Wall = &bailey.Wall{} }), bailey.Internal},
		"a /proc":          {cat(func(j *bailey.Job) { j.NeedsProc = true }), bailey.Internal},
		"a terminal":       {cat(func(j *bailey.Job) { j.TTY = true }), bailey.Internal},
		"bounds":           {cat(func(j *bailey.Job) { j.Limits.Tasks = 4 }), bailey.Internal},
		"files of its own": {cat(func(j *bailey.Job) { j.Read = []string{"/usr"} }), bailey.Internal},
		"helpers":          {cat(func(j *bailey.Job) { j.Exec = []string{"/bin/sh"} }), bailey.Internal},
		"a hidden file":    {cat(func(j *bailey.Job) { j.Hide = []string{"/x"} }), bailey.Internal},
		"a lent file":      {cat(func(j *bailey.Job) { j.FileNames = []string{"A"} }), bailey.Internal},
		"a frozen file":    {cat(func(j *bailey.Job) { j.Places = []bailey.Place{{Path: "/x", Frozen: &bailey.Frozen{}}} }), bailey.Internal},
		"a masked place":   {cat(func(j *bailey.Job) { j.Places = []bailey.Place{openPlace(t, secret)} }), bailey.Denied},
		"one with a mask":  {cat(func(j *bailey.Job) { j.Places = []bailey.Place{real} }), bailey.Denied},
		"of others":        {bailey.Job{Command: own}, bailey.Denied},
		"not there":        {bailey.Job{Command: "no-such-program"}, bailey.Unavailable},
	} {
		planned, err := n.Plan(context.Background(), c.job)
		if !errors.Is(err, c.kind) || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v (%s), want %s", name, err, bailey.HintOf(err), c.kind)
		}
		if planned != nil {
			planned.Close()
		}
	}
	if _, err := NewNone(Config{Mask: []string{"relative"}}); !errors.Is(err, bailey.Invalid) {
		t.Errorf("a mask that is not absolute: %v", err)
	}
}
