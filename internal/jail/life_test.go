//go:build linux

package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
	"bailey/test/since"
)

func TestExit(t *testing.T) {
	j := newJail(t, Config{})
	for _, c := range []struct {
		args []string
		code int
	}{{[]string{"exit", "0"}, 0}, {[]string{"exit", "3"}, 3}, {[]string{"die"}, 137}} {
		if r := ask(t, j, bailey.Job{}, c.args...).must(t); r.exit != (bailey.Exit{Code: c.code}) {
			t.Errorf("%v: %+v, want %d", c.args, r.exit, c.code)
		}
	}
}

func TestNothingSurvives(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	for _, verb := range []string{"daemon", "hold"} {
		dir := t.TempDir()
		file := filepath.Join(dir, "beat")
		begin := time.Now()
		r := ask(t, j, bailey.Job{Places: []bailey.Place{place(t, dir, true)}}, verb, file).must(t)
		if r.first() != "ok" || strings.Contains(r.out, "never") {
			t.Fatalf("%s: %+v", verb, r)
		}
		if !still(t, file) {
			t.Errorf("%s: a process outlived its call", verb)
		}
		if d := time.Since(begin); d > 45*time.Second {
			t.Errorf("%s: the call took %v", verb, d)
		}
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	timesUp(t, func(t *testing.T, grace time.Duration) *Jail { return newJail(t, Config{Grace: grace}) }, func(t *testing.T, _ *Jail) (string, []bailey.Place) {
		dir := t.TempDir()
		return dir, []bailey.Place{place(t, dir, true)}
	})
}

// TestTimesUnlessSaid checks the default times in which tools must end, helpers must answer and keepers must obey.
func TestTimesUnlessSaid(t *testing.T) {
	if j := plainJail(t, Config{}); j.times != (times{grace: time.Second, reluctance: 5 * time.Second, answer: 10 * time.Second}) {
		t.Errorf("%+v", j.times)
	}
	planned, err := Uncaged{}.Plan(t.Context(), bailey.Job{Command: "true"})
	if err != nil || planned.(*uncaged).grace != time.Second {
		t.Errorf("without a cage: %+v, %v", planned, err)
	}
	n, err := NewNone(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if planned, err = n.Plan(t.Context(), bailey.Job{Command: "true"}); err != nil || planned.(*bareRun).grace != time.Second {
		t.Fatalf("with isolation none: %+v, %v", planned, err)
	}
	planned.Close()
}

// timesUp checks calls whose timeout expires. If a tool was not asked to end, because it started too late, or did not
// end in time, the next try has more of both.
func timesUp(t *testing.T, jail func(t *testing.T, grace time.Duration) *Jail, at func(*testing.T, *Jail) (dir string, places []bailey.Place)) {
	t.Helper()
	for verb, call := range map[string]func(t *testing.T, timeout time.Duration) (begun bool){
		"deaf": func(t *testing.T, timeout time.Duration) bool {
			j := jail(t, short)
			dir, places := at(t, j)
			file, begin := filepath.Join(dir, "beat"), time.Now()
			r := ask(t, j, bailey.Job{Timeout: timeout, Places: places}, "deaf", file)
			took := time.Since(begin)
			if size(file) == 0 {
				return false
			}
			if took < timeout+short || took > timeout+short+time.Minute {
				t.Errorf("a deaf tool lived for %v", took)
			}
			if r.must(t).exit != (bailey.Exit{Code: 137, TimedOut: true}) || !still(t, file) {
				t.Errorf("a deaf tool ended with %+v", r)
			}
			return true
		},
		"tidy": func(t *testing.T, timeout time.Duration) bool {
			j := jail(t, 4*timeout)
			_, places := at(t, j)
			r := ask(t, j, bailey.Job{Timeout: timeout, Places: places}, "tidy")
			if r.out == "" || r.exit.Code == 137 {
				return false
			}
			if r.must(t).exit != (bailey.Exit{Code: 7, TimedOut: true}) || !strings.HasSuffix(r.out, "tidied\n") {
				t.Errorf("a tool that tidies up at SIGTERM ended with %+v", r)
			}
			return true
		},
		"sleep": func(t *testing.T, timeout time.Duration) bool {
			r := ask(t, jail(t, short), bailey.Job{Timeout: timeout}, "sleep")
			if bailey.KindOf(r.err) == bailey.Unavailable { // the cage was not built by then
				return false
			}
			if r.must(t); !r.exit.TimedOut || r.exit.Code == 0 {
				t.Errorf("a sleeping tool ended with %+v", r)
			}
			return true
		},
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			inMidst(t, func(timeout time.Duration) bool { return call(t, timeout) })
		})
	}
}

func TestCancelKills(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	dir := t.TempDir()
	file := filepath.Join(dir, "beat")
	r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"deaf", file}, Places: []bailey.Place{place(t, dir, true)}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stop := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for !exists(file) {
			time.Sleep(5 * time.Millisecond)
		}
		cancel(stop)
	}()
	exit, err := r.Start(ctx, bailey.Lent{}, bailey.Streams{})
	if !errors.Is(err, stop) || exit.Code != 137 || !still(t, file) {
		t.Errorf("%+v, %v", exit, err)
	}
	if _, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{}); bailey.KindOf(err) != bailey.Conflict {
		t.Errorf("a second start: %v", err)
	}
	if _, err := j.Plan(ctx, bailey.Job{Command: probe}); err == nil {
		t.Error("a job was planned for a caller that is gone")
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

type badWriter struct{ n int }

func (w *badWriter) Write(b []byte) (int, error) { w.n += len(b); return 0, errors.New("full") }

func TestStreams(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	const size = 32 << 20
	start := func(s bailey.Streams, args ...string) bailey.Exit {
		t.Helper()
		r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: args})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		exit, err := r.Start(t.Context(), bailey.Lent{}, s)
		if err != nil {
			t.Fatal(err)
		}
		return exit
	}
	var all bytes.Buffer
	if exit := start(bailey.Streams{Stdout: &all}, "flood", fmt.Sprint(size)); exit.Code != 0 || all.Len() != size {
		t.Errorf("a flood: %+v, %d bytes", exit, all.Len())
	}
	bad := &badWriter{}
	if exit := start(bailey.Streams{Stdout: bad}, "flood", fmt.Sprint(size)); exit.Code != 0 || bad.n == 0 || bad.n > 64<<10 {
		t.Errorf("a flood into a broken writer: %+v, %d bytes tried", exit, bad.n)
	}
	if exit := start(bailey.Streams{}, "flood", fmt.Sprint(size)); exit.Code != 0 {
		t.Errorf("a flood nobody wants: %+v", exit)
	}
	var out bytes.Buffer
	if start(bailey.Streams{Stdin: strings.NewReader("hello"), Stdout: &out}, "cat"); out.String() != "hello" {
		t.Errorf("stdin came out as %q", out.String())
	}
	endless, w := io.Pipe() // must not delay the call
	defer w.Close()
	if exit := start(bailey.Streams{Stdin: endless}, "exit", "4"); exit.Code != 4 {
		t.Errorf("with an open stdin: %+v", exit)
	}
}

func TestManyStartsLeaveNothing(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	dir := t.TempDir()
	p := place(t, dir, false)
	once := func() {
		if r := ask(t, j, bailey.Job{Command: "true", Places: []bailey.Place{p}}); r.err != nil || r.exit.Code != 0 {
			t.Errorf("%+v", r)
		}
	}
	once()
	n := 50
	if since.Due(t, "internal/jail") {
		n = 1000
	}
	fds, mounts := count(t, "/proc/self/fd"), lines(t, "/proc/self/mountinfo")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range n / 8 {
				once()
			}
		})
	}
	wg.Wait()
	if err := j.Close(); err != nil { // also ends the one PID 1 that waits for the next call
		t.Error(err)
	}
	if now := count(t, "/proc/self/fd"); now > fds+2 { // the poller may have opened its own
		t.Errorf("%d descriptors became %d", fds, now)
	}
	if now := lines(t, "/proc/self/mountinfo"); now != mounts {
		t.Errorf("%d mounts became %d", mounts, now)
	}
	var ws unix.WaitStatus
	if pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("a child is left: %d, %v", pid, err)
	}
}

// TestArmedIsNoTrap checks that if a waiting PID 1 has died, or its stream is closed, it is replaced and the call
// succeeds.
func TestArmedIsNoTrap(t *testing.T) {
	j := newJail(t, Config{})
	waiting := func() *child {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if all := j.cages().stock.all(); len(all) > 0 {
				return all[0].child
			}
		}
		t.Fatal("none was armed after a call")
		return nil
	}
	ok := func(what string) {
		t.Helper()
		if r := ask(t, j, bailey.Job{Command: "true"}); r.err != nil || r.exit.Code != 0 {
			t.Errorf("%s: %+v", what, r)
		}
	}
	ok("cold")
	first := waiting()
	ok("armed")
	if second := waiting(); second == first {
		t.Error("a PID 1 served twice")
	}
	waiting().process.Kill()
	ok("after the armed one was killed")
	waiting().stream.Close()
	ok("after its stream was closed")
	waiting()
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	ok("after Close")
}

func (s *initPool) all() []preforkedInit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.waiting)
}

// empty ends all processes that wait or are being started.
func (s *initPool) empty() {
	s.busy.Wait()
	s.mu.Lock()
	s.trimTo(0)
	s.mu.Unlock()
	s.busy.Wait()
}

func count(t *testing.T, dir string) int {
	t.Helper()
	e, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

func lines(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

func TestConcurrentStarts(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			if r := ask(t, j, bailey.Job{}, "exit", fmt.Sprint(i)); r.err != nil || r.exit.Code != i {
				t.Errorf("%d: %+v", i, r)
			}
		})
	}
	wg.Wait()
}

// gatewayEnv turns a test binary into a gateway that runs one heartbeat and is then killed.
const gatewayEnv = "BAILEY_JAIL_GATEWAY"

// lesserKindEnv makes that gateway use lesser cages with this uid.
const lesserKindEnv = "BAILEY_JAIL_LESSER_KIND"

func gatewayMain() int {
	dir := os.Getenv(gatewayEnv)
	uid, _ := strconv.Atoi(os.Getenv(lesserKindEnv))
	j, err := New(Config{HostUID: uid})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if uid != 0 {
		j.chosen, j.lesser = true, "a test says so"
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r, err := j.Plan(context.Background(), bailey.Job{Command: os.Getenv(probeEnv), Args: []string{"deaf", filepath.Join(dir, "beat")},
		Places: []bailey.Place{{Path: dir, File: os.NewFile(uintptr(fd), dir), Write: true}}})
	if err == nil {
		_, err = r.Start(context.Background(), bailey.Lent{}, bailey.Streams{})
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func TestGatewayDeathEndsTheCage(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns", "netns")
	mappable(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "beat")
	gateway := exec.Command("/proc/self/exe")
	gateway.Env = append(os.Environ(), gatewayEnv+"="+dir, probeEnv+"="+probe)
	var log bytes.Buffer
	gateway.Stderr = &log
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); !exists(file); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			gateway.Process.Kill()
			gateway.Wait()
			t.Fatalf("the tool never began: %s", log.String())
		}
	}
	gateway.Process.Kill()
	gateway.Wait()
	for begin := time.Now(); !still(t, file); {
		if time.Since(begin) > time.Minute {
			t.Fatal("the tool outlived its gateway")
		}
	}
}
