//go:build linux

package jail

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// state returns all that the probe sees of what one call could leave for another.
func (r told) state(t *testing.T) map[string]string {
	t.Helper()
	var s map[string]string
	if err := json.Unmarshal([]byte(r.must(t).out), &s); err != nil || len(s) < 60 {
		t.Fatalf("%v in %q, %q", err, r.out, r.log)
	}
	// PID 1 lowers its own bound on memory to that of the tool just after the tool has started.
	if name := fmt.Sprint("rlimit ", unix.RLIMIT_DATA); s[name] == fmt.Sprintf("{%d %[1]d}", defaultData+ownData) {
		s[name] = fmt.Sprintf("{%d %[1]d}", defaultData)
	}
	return s
}

func alike(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: %s is %q, not %q", what, name, got[name], w)
		}
	}
	for name, g := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is there, %q", what, name, g)
		}
	}
}

// TestNothingIsLeftOfACall checks that after a call that leaves all it can, the next one of the same helper sees a new
// cage.
func TestNothingIsLeftOfACall(t *testing.T) {
	ktest.Long(t)
	w := warmJail(t, Config{})
	want := ask(t, w.Jail, bailey.Job{}, "state").state(t)
	before, h := w.hot(t, bailey.Job{}, "state")
	alike(t, "a warm call", before.state(t), want)
	for range 3 {
		r, then := w.hot(t, bailey.Job{}, "litter")
		if n := strings.Count(r.must(t).out, " ok\n"); n < 30 || r.exit.Code != 0 {
			t.Fatalf("%d pieces of litter: %+v", n, r)
		}
		after, last := w.hot(t, bailey.Job{}, "state")
		alike(t, "after a call that left what it could", after.state(t), want)
		if then != h || last != h || then.process.Pid != last.process.Pid {
			t.Fatal("another helper has served")
		}
	}
}

// TestTwoLiveCallsAreApart checks that a call sees nothing of a live one in another helper of the same plan that has
// already left all it can.
func TestTwoLiveCallsAreApart(t *testing.T) {
	ktest.Long(t)
	w := warmJail(t, Config{})
	want := ask(t, w.Jail, bailey.Job{}, "state").state(t)
	first := w.heat(t, bailey.Job{}, "exit", "0")
	ctx, cancel := context.WithCancel(t.Context())
	read, out := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		start(ctx, w.Jail, bailey.Job{Command: probe, Args: []string{"litter", "stay"}}, nil, bailey.Streams{Stdout: out})
		out.Close()
	}()
	defer func() { cancel(); <-done }()
	for lines := bufio.NewScanner(read); ; {
		if !lines.Scan() {
			t.Fatal("the first call did not litter")
		}
		if lines.Text() == "littered ok" {
			break
		}
	}
	r, second := w.hot(t, bailey.Job{}, "state")
	alike(t, "beside a call that lives", r.state(t), want)
	if second == first || first.calls != 1 {
		t.Errorf("the same helper has both, or the first call was none of a helper's: %d calls", first.calls)
	}
}

// TestNoLentValueStays checks that a lent value, which comes through the mailbox, is in its helper's memory only during
// the call, and never in the attributes that the kernel shows of the helper.
func TestNoLentValueStays(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "root") // for reading the memory
	w := warmJail(t, Config{})
	job := bailey.Job{EnvNames: []string{"TOKEN"}}
	h := w.heat(t, job, "exit", "0")
	for range 2 {
		token, argument := random(t), random(t)
		r, held := &bytes.Buffer{}, 0
		read := writerFunc(func(b []byte) (int, error) { held += found(t, h, token); return r.Write(b) })
		job.Command, job.Args = probe, []string{"sees", argument}
		exit, err := start(t.Context(), w.Jail, job, []string{"TOKEN=" + token}, bailey.Streams{Stdout: read})
		if err != nil || exit.Code != 0 || !strings.Contains(r.String(), token) || !strings.Contains(r.String(), argument) {
			t.Fatalf("%+v, %v, %s", exit, err, r)
		}
		if !w.keeps(h) {
			t.Fatal("the helper is gone")
		}
		if held == 0 {
			t.Error("a token in the helper's memory is not found: this test would miss one that stays")
		}
		if n := found(t, h, token) + found(t, h, argument); n > 0 {
			t.Errorf("%d places of the helper's hold what was lent to a call that is over", n)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// found counts a token in the memory of a helper, and checks the attributes that the kernel shows.
func found(t *testing.T, h *helper, token string) (n int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", h.process.Pid)
	for _, name := range []string{"environ", "cmdline", "comm", "status"} {
		b, err := os.ReadFile(dir + name)
		if err != nil || bytes.Contains(b, []byte(token)) {
			t.Errorf("%s shows a token, or cannot be read: %v", name, err)
		}
	}
	maps, err := os.ReadFile(dir + "maps")
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.Open(dir + "mem")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var rights string
		fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights)
		if !strings.HasPrefix(rights, "rw") || to-from > 256<<20 {
			continue
		}
		b := make([]byte, to-from)
		got, _ := memory.ReadAt(b, from)
		n += bytes.Count(b[:got], []byte(token))
	}
	return n
}

// TestNoBoundIsReportedTwice checks that lack of memory is not reported again for the next call.
func TestNoBoundIsReportedTwice(t *testing.T) {
	ktest.Long(t)
	w := warmJail(t, Config{})
	r, h := w.hot(t, bailey.Job{}, "hoard", "700", "shared")
	if r.must(t).exit.Over == "" || r.exit.Code != 137 {
		t.Fatalf("700 MiB of 512: %+v", r)
	}
	for range 2 {
		r, again := w.hot(t, bailey.Job{}, "exit", "0")
		t.Logf("by the same helper: %v", h == again) // if the kernel ends a whole group, the helper ends too
		if r.must(t).exit != (bailey.Exit{}) {
			t.Errorf("the call after one that was ended for want of memory: %+v", r)
		}
	}
}
