//go:build linux

package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
	"bailey/internal/ktest"
)

// childrenOf returns the pids of a process's children, oldest first.
func childrenOf(pid int) (list []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, word := range strings.Fields(string(text)) {
		n, _ := strconv.Atoi(word)
		list = append(list, n)
	}
	return list
}

// begun waits until the tool has created the file.
func begun(t testing.TB, file string) {
	t.Helper()
	for begin := time.Now(); size(file) == 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Error("the tool never began")
			return
		}
	}
}

// TestKilledInTheCall checks that if any process of a warm call is killed, a tool that has begun is not run again, and
// the jail still works.
func TestKilledInTheCall(t *testing.T) {
	ktest.Long(t)
	for _, c := range []struct {
		name   string
		victim func(h *helper) int
		kept   bool // the helper survives
	}{
		{"helper", func(h *helper) int { return h.process.Pid }, false},
		{"PID 1", func(h *helper) int { return childrenOf(h.process.Pid)[0] }, true},
		{"tool", func(h *helper) int { return childrenOf(h.process.Pid)[1] }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := warmJail(t, Config{})
			dir, p := writable(t)
			file := filepath.Join(dir, "runs")
			job := bailey.Job{Places: []bailey.Place{p}}
			h := w.heat(t, job, "exit", "0")
			w.shut.Store(false) // a wrong second run must be possible
			killed := make(chan struct{})
			go func() { begun(t, file); unix.Kill(c.victim(h), unix.SIGKILL); close(killed) }()
			begin := time.Now()
			r := ask(t, w.Jail, job, "count", file, "60s")
			<-killed
			if r.err != nil || r.exit != (bailey.Exit{Code: 137}) || size(file) != 1 || h.calls != 1 || time.Since(begin) > time.Minute {
				t.Errorf("%+v, %d runs, %d calls of the helper, after %v", r, size(file), h.calls, time.Since(begin))
			}
			if kept := w.keeps(h); kept != c.kept {
				t.Errorf("the helper is kept: %v", kept)
			}
			if r := ask(t, w.Jail, job, "count", file); r.err != nil || r.exit.Code != 0 || size(file) != 2 {
				t.Errorf("the next call: %+v, %d runs", r, size(file)-1)
			}
		})
	}
}

// TestKilledBetweenCalls checks that if a helper or its prepared cage is killed between calls, the next call is
// unaffected and runs once.
func TestKilledBetweenCalls(t *testing.T) {
	ktest.Long(t)
	for _, onDemand := range []bool{false, true} {
		for name, victim := range map[string]func(h *helper) []int{
			"helper":         func(h *helper) []int { return []int{h.process.Pid} },
			"what it parked": func(h *helper) []int { return childrenOf(h.process.Pid) },
			"PID 1":          func(h *helper) []int { return childrenOf(h.process.Pid)[:1] },
			"parked tool":    func(h *helper) []int { return childrenOf(h.process.Pid)[1:] },
		} {
			if onDemand && name != "helper" { // no prepared cage on demand
				continue
			}
			t.Run(fmt.Sprintf("%s/on demand %v", name, onDemand), func(t *testing.T) {
				w := warmJail(t, Config{OnDemand: onDemand})
				dir, p := writable(t)
				file := filepath.Join(dir, "runs")
				job := bailey.Job{Places: []bailey.Place{p}}
				h := w.heat(t, job, "exit", "0")
				w.shut.Store(false)
				victims := victim(h)
				if name == "helper" {
					victims = append(victims, childrenOf(h.process.Pid)...)
				}
				for _, pid := range victims {
					unix.Kill(pid, unix.SIGKILL)
				}
				for _, pid := range victims { // a dying process could still take a call, which would then have begun
					for running(pid) {
						time.Sleep(time.Millisecond)
					}
				}
				for runs := range 3 {
					if r := ask(t, w.Jail, job, "count", file); r.err != nil || r.exit != (bailey.Exit{}) || size(file) != runs+1 {
						t.Errorf("%+v, %d runs", r, size(file)-runs)
					}
				}
				w.cages().busy.Wait()
				if name == "helper" && w.keeps(h) {
					t.Error("a dead helper is kept")
				}
			})
		}
	}
}

// TestKilledBeforeTheMailIsRead checks that if a helper dies before a call's mail is read, the call has not begun and
// runs once.
func TestKilledBeforeTheMailIsRead(t *testing.T) {
	ktest.Long(t)
	w := warmJail(t, Config{})
	dir, p := writable(t)
	file := filepath.Join(dir, "runs")
	job := bailey.Job{Places: []bailey.Place{p}}
	h := w.heat(t, job, "exit", "0")
	w.shut.Store(false)
	parked := childrenOf(h.process.Pid)[1]
	unix.Kill(parked, unix.SIGSTOP)
	for status := []byte(nil); !bytes.Contains(status, []byte("State:\tT")); {
		status, _ = os.ReadFile(fmt.Sprintf("/proc/%d/status", parked))
	}
	go func() {
		for taken := false; !taken; time.Sleep(time.Millisecond) { // taken by the call, whose mail is then sent at once
			w.cages().mu.Lock()
			taken = h.taken
			w.cages().mu.Unlock()
		}
		time.Sleep(300 * time.Millisecond)
		unix.Kill(h.process.Pid, unix.SIGKILL)
	}()
	r := ask(t, w.Jail, job, "count", file)
	if r.err != nil || r.exit != (bailey.Exit{}) || size(file) != 1 || h.calls != 1 {
		t.Errorf("%+v, %d runs, %d calls of the helper", r, size(file), h.calls)
	}
	if w.keeps(h) {
		t.Error("a dead helper is kept")
	}
}

// TestParkedBeforeTheTool checks that a helper reports Parked before there is a tool. So if it ends without a report,
// the call can run elsewhere.
func TestParkedBeforeTheTool(t *testing.T) {
	w := warmJail(t, Config{OnDemand: true})
	h := w.heat(t, bailey.Job{}, "exit", "0")
	w.cages().pickHelper(h.digest)
	for _, s := range h.groups.sites {
		dir := filepath.Join(s.dir, h.hold.(*cgroup).name)
		if now := strings.TrimSpace(readKnob(dir + "/pids.current")); now != "" {
			n, _ := strconv.Atoi(now)
			// enough for PID 1, but not for the tool
			if err := writeKnob(dir+"/pids.max", strconv.Itoa(n+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := h.armCage(); err != nil {
		t.Fatal(err)
	}
	var said string
	for {
		kind, _, _, err := h.readReport()
		if err != nil {
			break
		}
		said += string(rune(kind))
	}
	if said != string([]rune{inside.Parked, inside.Failed}) {
		t.Errorf("a helper that can have no tool says %q", said)
	}
	h.spoilt = errors.New("a test has used it")
	w.cages().dropHelper(h)
}

// TestTimeIsUpWarm checks that a warm tool gets SIGTERM at its timeout, and is killed if it does not end.
func TestTimeIsUpWarm(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	hasty, patient := warmJail(t, Config{Grace: short}), warmJail(t, Config{Grace: gentle})
	dir, p := writable(t)
	inMidst(t, func(timeout time.Duration) bool {
		r, h := patient.brief(t, bailey.Job{Places: []bailey.Place{p}}, timeout, "tidy")
		if r.out == "" || r.exit.Code == 137 { // SIGTERM arrived before the program could handle it
			return false
		}
		if r.err != nil || r.exit != (bailey.Exit{Code: 7, TimedOut: true}) || !strings.HasSuffix(r.out, "tidied\n") || !patient.keeps(h) {
			t.Errorf("a tool that tidies up at SIGTERM: %+v, the helper is kept: %v", r, patient.keeps(h))
		}
		return true
	})
	inMidst(t, func(timeout time.Duration) bool {
		file, begin := filepath.Join(dir, "beat"+timeout.String()), time.Now()
		r, h := hasty.brief(t, bailey.Job{Places: []bailey.Place{p}}, timeout, "deaf", file)
		took := time.Since(begin)
		if size(file) == 0 {
			return false
		}
		if r.err != nil || r.exit != (bailey.Exit{Code: 137, TimedOut: true}) || !still(t, file) || took < timeout+short || took > timeout+short+time.Minute {
			t.Errorf("a deaf tool: %+v after %v", r, took)
		}
		if hasty.keeps(h) || alive(h.process.Pid) {
			t.Error("a helper that was killed is kept")
		}
		return true
	})
	inMidst(t, func(timeout time.Duration) bool {
		r, _ := patient.brief(t, bailey.Job{Places: []bailey.Place{p}}, timeout, "sleep")
		// the cage, or the program in it, was not ready by then
		if bailey.KindOf(r.err) == bailey.Unavailable || r.exit.Code == 137 {
			return false
		}
		if !r.exit.TimedOut || r.exit.Code != 128+int(unix.SIGTERM) && r.exit.Code != 2 { // exit code of Go's runtime
			t.Errorf("a sleeping tool: %+v", r)
		}
		return true
	})
	for range 20 { // the timeout expires before the tool can begin, or soon after
		hasty.shut.Store(false)
		if r := ask(t, hasty.Jail, bailey.Job{Timeout: time.Microsecond, Places: []bailey.Place{p}}, "sleep"); !r.exit.TimedOut && bailey.KindOf(r.err) != bailey.Unavailable {
			t.Errorf("no time at all: %+v", r)
		}
	}
}

// TestCancelledWarm checks that a call whose caller is gone is ended at once, or asked to end. If it was killed, its
// helper must not serve another call.
func TestCancelledWarm(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	for name, c := range map[string]struct {
		cause error
		verb  string
		kept  bool
		code  int
	}{
		"hard":            {errors.New("stopped"), "deaf", false, 137},
		"gentle, heard":   {bailey.Gentle{Cause: errors.New("stopped")}, "tidy", true, 7},
		"gentle, unheard": {bailey.Gentle{Cause: errors.New("stopped")}, "deaf", false, 137},
	} {
		t.Run(name, func(t *testing.T) {
			w := warmJail(t, Config{Grace: map[string]time.Duration{"deaf": short, "tidy": time.Minute}[c.verb]})
			dir, p := writable(t)
			file := filepath.Join(dir, "beat")
			job := bailey.Job{Places: []bailey.Place{p}, Command: probe, Args: []string{c.verb, file}}
			h := w.heat(t, job, "exit", "0")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var once sync.Once
			// tidy writes when it waits
			out := writerFunc(func(b []byte) (int, error) { once.Do(func() { cancel(c.cause) }); return len(b), nil })
			if c.verb == "deaf" {
				go func() { begun(t, file); cancel(c.cause) }()
			}
			exit, err := start(ctx, w.Jail, job, nil, bailey.Streams{Stdout: out})
			if exit.Code != c.code || (c.code == 137) != errors.Is(err, c.cause) || h.calls != 1 {
				t.Errorf("%+v, %v; the helper has served %d", exit, err, h.calls)
			}
			if c.verb == "deaf" && !still(t, file) {
				t.Error("the tool lives")
			}
			if kept := w.keeps(h); kept != c.kept || alive(h.process.Pid) != c.kept {
				t.Errorf("the helper is kept: %v", kept)
			}
			if r, _ := w.hot(t, bailey.Job{Places: job.Places}, "exit", "3"); r.exit.Code != 3 {
				t.Errorf("the next call: %+v", r)
			}
		})
	}
}

// TestWarmStreams checks that the streams of a warm tool work like those of any other.
func TestWarmStreams(t *testing.T) {
	ktest.Long(t)
	w := warmJail(t, Config{})
	const much = 32 << 20
	run := func(s bailey.Streams, args ...string) bailey.Exit {
		t.Helper()
		h := w.heat(t, bailey.Job{}, "exit", "0")
		before := h.calls
		exit, err := start(t.Context(), w.Jail, bailey.Job{Command: probe, Args: args}, nil, s)
		if err != nil || h.calls != before+1 {
			t.Errorf("%v: %v, the helper has served %d", args, err, h.calls-before)
		}
		return exit
	}
	var all, log bytes.Buffer
	if exit := run(bailey.Streams{Stdout: &all, Stderr: &log}, "floods", fmt.Sprint(much)); exit.Code != 0 || all.Len() != much || log.Len() != much {
		t.Errorf("two floods: %+v, %d and %d bytes", exit, all.Len(), log.Len())
	}
	bad := &badWriter{}
	if exit := run(bailey.Streams{Stdout: bad}, "flood", fmt.Sprint(much)); exit.Code != 0 || bad.n == 0 || bad.n > 64<<10 {
		t.Errorf("a flood into a broken writer: %+v, %d bytes tried", exit, bad.n)
	}
	slow := 0
	if exit := run(bailey.Streams{Stdout: writerFunc(func(b []byte) (int, error) { time.Sleep(10 * time.Millisecond); slow += len(b); return len(b), nil })}, "flood", "1000000"); exit.Code != 0 || slow != 1000000 {
		t.Errorf("a flood into a slow writer: %+v, %d bytes", exit, slow)
	}
	if exit := run(bailey.Streams{}, "flood", fmt.Sprint(much)); exit.Code != 0 {
		t.Errorf("a flood nobody wants: %+v", exit)
	}
	var out bytes.Buffer
	if run(bailey.Streams{Stdin: strings.NewReader("hello"), Stdout: &out}, "cat"); out.String() != "hello" {
		t.Errorf("stdin came out as %q", out.String())
	}
	open, end := io.Pipe() // must not delay the call
	defer end.Close()
	if exit := run(bailey.Streams{Stdin: open}, "exit", "4"); exit.Code != 4 {
		t.Errorf("with an open stdin: %+v", exit)
	}
	if exit := run(bailey.Streams{Stdin: endless{}}, "exit", "4"); exit.Code != 4 {
		t.Errorf("with a stdin without end: %+v", exit)
	}
	for _, verb := range []string{"die", "killall"} {
		if exit := run(bailey.Streams{}, verb); (exit.Code == 137) != (verb == "die") {
			t.Errorf("%s: %+v", verb, exit)
		}
	}
}

// TestTooMuchForTheMailbox checks that arguments that do not fit into the mailbox go to a cold call unchanged, and
// those that just fit to the helper.
func TestTooMuchForTheMailbox(t *testing.T) {
	w := warmJail(t, Config{})
	h := w.heat(t, bailey.Job{}, "exit", "0")
	w.shut.Store(false)
	many := func(n int) []string { return strings.Fields(strings.Repeat("w ", n)) }
	for _, c := range []struct {
		name string
		args []string
		warm bool
	}{
		{"few", many(3), true},
		{"509 words and the program's own", many(509), true},
		{"510", many(510), false},
		{"4000", many(4000), false},
		{"a long one", []string{strings.Repeat("x", 50<<10)}, true},
		{"one too long", []string{strings.Repeat("x", 64<<10)}, false},
		{"two together too long", []string{strings.Repeat("x", 40<<10), strings.Repeat("y", 40<<10)}, false},
		{"empty words", []string{"", "", ""}, true},
	} {
		w.cages().busy.Wait() // until the helper has a cage for the next call
		before := h.calls
		r := ask(t, w.Jail, bailey.Job{}, append([]string{"words"}, c.args...)...)
		if r.err != nil || r.exit.Code != 0 || r.out != fmt.Sprintf("%q", c.args) || (h.calls == before+1) != c.warm {
			t.Errorf("%s: %v, %+v, %d bytes of %d; a helper's: %v", c.name, r.err, r.exit, len(r.out), len(fmt.Sprintf("%q", c.args)), h.calls > before)
		}
		if !w.keeps(h) {
			t.Fatalf("%s: the helper is gone", c.name)
		}
	}
}
