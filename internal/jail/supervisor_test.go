//go:build linux

package jail

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// TestAccomplice lets a cage swap two names in a directory as fast as it can, while other calls are planned and started
// on one of them. They must show what was opened, or must not start.
func TestAccomplice(t *testing.T) {
	ktest.Long(t)
	j, s := newJail(t, Config{}), staged(t)
	work, evil := filepath.Join(s.RW, "work"), filepath.Join(s.RW, "evil")
	for _, dir := range []string{work, evil} {
		put(t, filepath.Join(dir, "mark"), filepath.Base(dir)+" ", 0o644)
	}
	planned, err := j.Plan(t.Context(), s.job(t, "flip", work, evil))
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	ctx, cancel := context.WithCancel(t.Context())
	read, out := io.Pipe()
	done := make(chan struct{})
	go func() { planned.Start(ctx, bailey.Lent{}, bailey.Streams{Stdout: out}); close(done) }()
	defer func() { cancel(); <-done }()
	if line, err := bufio.NewReader(read).ReadString('\n'); line != "flipping\n" {
		t.Fatal(line, err)
	}
	ran, refused := 0, 0
	for range 60 {
		p := place(t, work, false)
		checked, err := os.ReadFile("/proc/self/fd/" + strconv.Itoa(int(p.File.Fd())) + "/mark")
		if err != nil {
			t.Fatal(err)
		}
		r := ask(t, j, bailey.Job{Places: []bailey.Place{p}}, "show", filepath.Join(work, "mark"))
		switch {
		case r.err == nil && r.out == string(checked)+"ok\n":
			ran++
		case bailey.KindOf(r.err) == bailey.Conflict && r.out == "":
			refused++
		default:
			t.Errorf("checked %q, shown %q, %v", checked, r.out, r.err)
		}
		p.File.Close()
	}
	t.Logf("%d ran on what was checked, %d were refused", ran, refused)
	if os.Geteuid() == 0 && refused > 0 { // the descriptor itself is mounted
		t.Errorf("%d calls of a gateway that is root were refused", refused)
	}
}

// TestTurnedBetweenPlanAndStart replaces a path that is mounted by name, or a directory above it, before the start.
func TestTurnedBetweenPlanAndStart(t *testing.T) {
	ktest.Long(t)
	turn := map[string]func(t *testing.T, path string){
		"a FIFO":       func(t *testing.T, path string) { unix.Mkfifo(path, 0o666) },
		"a socket":     func(t *testing.T, path string) { l, _ := net.Listen("unix", path); t.Cleanup(func() { l.Close() }) },
		"a symlink":    func(t *testing.T, path string) { os.Symlink("/etc", path) },
		"another file": func(t *testing.T, path string) { put(t, path, "swapped ", 0o644) },
		"nothing":      func(*testing.T, string) {},
	}
	for name, do := range turn {
		for _, kind := range []string{"place", "read", "parent"} {
			t.Run(kind+" is "+name, func(t *testing.T) {
				j := newJail(t, Config{})
				file := put(t, filepath.Join(enterable(t), "dir", "file"), "checked ", 0o644)
				moved := file
				job := bailey.Job{Command: probe, Args: []string{"show", file}}
				switch kind {
				case "read":
					job.Read = []string{file}
				case "parent":
					moved = filepath.Dir(file)
					fallthrough
				default:
					job.Places = []bailey.Place{place(t, file, false)}
				}
				r, err := j.Plan(t.Context(), job)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				if err := os.Rename(moved, moved+".old"); err != nil {
					t.Fatal(err)
				}
				do(t, moved)
				var out strings.Builder
				_, err = r.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &out})
				donated := os.Geteuid() == 0 && kind != "read"
				if donated && (err != nil || out.String() != "checked ok\n") || !donated && (bailey.KindOf(err) != bailey.Conflict || out.Len() > 0) {
					t.Errorf("%q, %v", out.String(), err)
				}
			})
		}
	}
}

// enterable returns a directory that the cage's user may enter: files in Read are not idmapped.
func enterable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "bailey-open-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	return dir
}

// TestMaskedIsGoneAtStart checks that a call does not start if a path to mask has moved: the mask would cover nothing.
func TestMaskedIsGoneAtStart(t *testing.T) {
	work := t.TempDir()
	key := put(t, filepath.Join(work, ".ssh", "id"), "secret", 0o644)
	j := newJail(t, Config{Mask: []string{filepath.Dir(key)}})
	r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"show", filepath.Join(work, "elsewhere", "id")}, Places: []bailey.Place{place(t, work, false)}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := os.Rename(filepath.Dir(key), filepath.Join(work, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &out}); bailey.KindOf(err) != bailey.Conflict || out.Len() > 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestStoppedGroup checks that a tool that stops itself and all it can reach is still ended at its timeout.
func TestStoppedGroup(t *testing.T) {
	ktest.Long(t)
	j, s := newJail(t, Config{Grace: short}), staged(t)
	job := s.job(t, "freeze")
	job.Timeout = 500 * time.Millisecond
	begin := time.Now()
	r := ask(t, j, job).must(t)
	if took := time.Since(begin); r.exit != (bailey.Exit{Code: 137, TimedOut: true}) || took > job.Timeout+short+time.Minute {
		t.Errorf("%+v after %v", r, took)
	}
	s.look(t)
}

// endless is a standard input that never ends.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

func TestEndlessInput(t *testing.T) {
	j := newJail(t, Config{})
	for _, verb := range []string{"exit", "cat"} { // one reads nothing, the other reads a part
		r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{verb, "0"}})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		exit, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdin: endless{}})
		if err != nil || exit.Code != 0 || time.Since(begin) > time.Minute {
			t.Errorf("%s: %+v, %v after %v", verb, exit, err, time.Since(begin))
		}
		r.Close()
	}
}

// FuzzReports checks that, whatever a cage reports, a tool that did not start never counts as run, and only a reported
// exit counts as one.
func FuzzReports(f *testing.F) {
	f.Add([]byte("S\x00\x00\x00\x00\x00\x00\x00\x00X\x00\x07\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("F\xff\xff\xff\xff\x01\x00\x00\x00"))
	f.Add([]byte("X\x00\x00\x00\x00\x00\x00\x00\x00garbage"))
	plan := samplePlan(false)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		go func() { w.Write(b); w.Close() }()
		e := (&child{stream: r}).readReports()
		exit, err := (&run{plan: plan}).deriveExit(t.Context(), e)
		if !e.started && (err == nil || exit.Code != bailey.NeverRan) || e.failed && err == nil {
			t.Errorf("%x: %+v became %+v, %v", b, e, exit, err)
		}
	})
}
