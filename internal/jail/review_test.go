//go:build linux

package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// reviewDir is a directory that lies neither beneath a cage's own /tmp nor its home.
func reviewDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "bailey-review-")
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o777)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// reviewWarm asks until a helper has served a call, and returns it.
func reviewWarm(t *testing.T, j *Jail, job func() bailey.Job, args ...string) *helper {
	t.Helper()
	for range 12 {
		ask(t, j, job(), args...).must(t)
		j.warm.busy.Wait()
		j.warm.mu.Lock()
		for _, h := range j.warm.helpers {
			if h.calls > 0 && h.spoilt == nil {
				j.warm.mu.Unlock()
				return h
			}
		}
		j.warm.mu.Unlock()
	}
	t.Skip("no warm helper on this host")
	return nil
}

func reviewPut(t *testing.T, path, text string) {
	t.Helper()
	os.MkdirAll(filepath.Dir(path), 0o777)
	os.Chmod(filepath.Dir(path), 0o777)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestReviewMaskReplaced: a masked file that is saved anew (write beside it, rename over it) stays masked in the next call.
func TestReviewMaskReplaced(t *testing.T) {
	for _, write := range []bool{false, true} {
		t.Run(fmt.Sprint("write=", write), func(t *testing.T) {
			dir := reviewDir(t)
			secret := filepath.Join(dir, "secret")
			reviewPut(t, secret, "SECRET-1")
			j := newJail(t, Config{Mask: []string{secret}})
			job := func() bailey.Job { return bailey.Job{Places: []bailey.Place{place(t, dir, write)}} }
			h := reviewWarm(t, j, job, "show", secret)
			if r := ask(t, j, job(), "show", secret).must(t); strings.Contains(r.out, "SECRET") {
				t.Fatalf("before: %+v", r)
			}
			j.warm.busy.Wait()
			before := h.calls
			reviewPut(t, secret+".new", "SECRET-2")
			if err := os.Rename(secret+".new", secret); err != nil {
				t.Fatal(err)
			}
			r := ask(t, j, job(), "show", secret).must(t)
			t.Logf("served by the helper: %v; %q", h.calls > before, r.out)
			if strings.Contains(r.out, "SECRET") {
				t.Errorf("a masked file was read: %q", r.out)
			}
		})
	}
}

// TestReviewMaskedDirectoryReplaced: the same of a directory above a mask, in a place that is only read.
func TestReviewMaskedDirectoryReplaced(t *testing.T) {
	dir := reviewDir(t)
	secret := filepath.Join(dir, "holder", "secret", "key")
	reviewPut(t, secret, "SECRET-1")
	j := newJail(t, Config{Mask: []string{filepath.Dir(secret)}})
	job := func() bailey.Job { return bailey.Job{Places: []bailey.Place{place(t, dir, false)}} }
	h := reviewWarm(t, j, job, "show", secret)
	before := h.calls
	if err := os.Rename(filepath.Join(dir, "holder"), filepath.Join(dir, "holder.old")); err != nil {
		t.Fatal(err)
	}
	reviewPut(t, secret, "SECRET-2")
	r := ask(t, j, job(), "show", secret).must(t)
	t.Logf("served by the helper: %v; %q", h.calls > before, r.out)
	if strings.Contains(r.out, "SECRET") {
		t.Errorf("a masked file was read: %q", r.out)
	}
}

// TestReviewNestedPlaceReplaced: a read-only place in a writable one, removed and made again, which may have its old
// inode's number, stays read-only.
func TestReviewNestedPlaceReplaced(t *testing.T) {
	dir := reviewDir(t)
	inner := filepath.Join(dir, "inner")
	target := filepath.Join(inner, "file")
	os.Mkdir(inner, 0o777)
	os.Chmod(inner, 0o777)
	j := newJail(t, Config{})
	// The descriptors are closed with their call, as the gate's are: one that stays open would keep the number.
	call := func(args ...string) told {
		outer, in := place(t, dir, true), place(t, inner, false)
		defer outer.File.Close()
		defer in.File.Close()
		return ask(t, j, bailey.Job{Places: []bailey.Place{outer, in}}, args...).must(t)
	}
	ino := func() uint64 {
		var st syscall.Stat_t
		if err := syscall.Stat(inner, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	for range 4 {
		if r := call("write", target); strings.HasPrefix(r.out, "ok") {
			t.Fatalf("before: %+v", r)
		}
		j.warm.busy.Wait()
	}
	var h *helper
	for _, o := range j.warm.helpers {
		if o.calls > 0 {
			h = o
		}
	}
	if h == nil {
		t.Skip("no warm helper")
	}
	for range 20 {
		was, calls := ino(), h.calls
		os.RemoveAll(inner)
		for i := 0; ; i++ { // whoever makes directories gets that number in the end
			os.Mkdir(inner, 0o777)
			if ino() == was || i > 4000 {
				break
			}
			os.Rename(inner, fmt.Sprint(filepath.Join(t.TempDir(), fmt.Sprint(i))))
		}
		os.Chmod(inner, 0o777)
		r := call("write", target)
		j.warm.busy.Wait()
		t.Logf("inode %d, then %d; by that helper: %v; %q", was, ino(), h.calls > calls, r.out)
		if strings.HasPrefix(r.out, "ok") {
			t.Fatal("written in a place that the call only reads")
		}
		if ino() != was {
			break
		}
	}
}

// TestReviewCancelledIsNotBegun: a call that is cancelled before its tool was executed never begins.
func TestReviewCancelledIsNotBegun(t *testing.T) {
	dir := reviewDir(t)
	target := filepath.Join(dir, "file")
	j := newJail(t, Config{OnDemand: true})
	job := func() bailey.Job { return bailey.Job{Places: []bailey.Place{place(t, dir, true)}} }
	h := reviewWarm(t, j, job, "write", target)
	os.Remove(target)
	for range 5 {
		ctx, cancel := context.WithCancelCause(t.Context())
		plan := job()
		plan.Command, plan.Args = probe, []string{"write", target}
		r, err := j.Plan(ctx, plan)
		if err != nil {
			t.Fatal(err)
		}
		syscall.Kill(h.process.Pid, syscall.SIGSTOP) // a slow machine
		time.AfterFunc(100*time.Millisecond, func() { cancel(bailey.Gentle{Cause: errors.New("the caller left")}) })
		time.AfterFunc(300*time.Millisecond, func() { syscall.Kill(h.process.Pid, syscall.SIGCONT) })
		var out bytes.Buffer
		exit, err := r.Start(ctx, nil, bailey.Streams{Stdout: &out, Stderr: &out})
		r.Close()
		_, serr := os.Stat(target)
		t.Logf("%+v %v; written: %v", exit, err, serr == nil)
		if serr == nil {
			t.Fatal("a call began after it was cancelled")
		}
		j.warm.busy.Wait()
		if h.spoilt != nil {
			break
		}
	}
}

// TestReviewTimeIsNotDoubled: a call whose time is up before its tool was executed is not given as much time again.
func TestReviewTimeIsNotDoubled(t *testing.T) {
	j := newJail(t, Config{OnDemand: true})
	const limit = time.Second
	job := func() bailey.Job { return bailey.Job{Timeout: limit} }
	h := reviewWarm(t, j, job, "exit", "0")
	syscall.Kill(h.process.Pid, syscall.SIGSTOP)
	time.AfterFunc(1300*time.Millisecond, func() { syscall.Kill(h.process.Pid, syscall.SIGCONT) })
	begin := time.Now()
	r := ask(t, j, job(), "sleep")
	took := time.Since(begin)
	t.Logf("%v: %+v", took, r)
	if took > limit+grace+150*time.Millisecond {
		t.Errorf("a second's call took %v", took)
	}
}

// slow is a writer that takes its time.
type slow struct {
	bytes.Buffer
	n int
	d time.Duration
}

func (s *slow) Write(b []byte) (int, error) {
	time.Sleep(s.d)
	s.n += len(b)
	if s.n < 1<<20 {
		s.Buffer.Write(b)
	}
	return len(b), nil
}

func reviewSlow(t *testing.T, j *Jail, job bailey.Job, d time.Duration, args ...string) (told, time.Duration) {
	t.Helper()
	job.Command, job.Args = probe, args
	r, err := j.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out, begin := &slow{d: d}, time.Now()
	exit, err := r.Start(t.Context(), nil, bailey.Streams{Stdout: out, Stderr: &bytes.Buffer{}})
	return told{exit: exit, err: err, out: out.String()}, time.Since(begin)
}

// TestReviewFloodAfterTheEnd: a tool that has exited has ended, whatever it left writes.
func TestReviewFloodAfterTheEnd(t *testing.T) {
	j := newJail(t, Config{})
	job := func() bailey.Job { return bailey.Job{Timeout: 3 * time.Second} }
	cold, took := reviewSlow(t, j, job(), 2*time.Millisecond, "leaveflood")
	t.Logf("cold after %v: %+v, %v", took, cold.exit, cold.err)
	h := reviewWarm(t, j, job, "leaveflood", "0")
	calls := h.calls
	r, took := reviewSlow(t, j, job(), 2*time.Millisecond, "leaveflood")
	t.Logf("warm (%v) after %v: %+v, %v", h.calls > calls, took, r.exit, r.err)
	if r.exit != cold.exit {
		t.Errorf("cold %+v, warm %+v", cold.exit, r.exit)
	}
}

// TestReviewPackets: what a tool wrote before its end arrives, in whatever pieces.
func TestReviewPackets(t *testing.T) {
	j := newJail(t, Config{})
	job := func() bailey.Job { return bailey.Job{} }
	cold, _ := reviewSlow(t, j, job(), 20*time.Millisecond, "packets")
	h := reviewWarm(t, j, job, "packets")
	calls := h.calls
	if r, _ := reviewSlow(t, j, job(), 20*time.Millisecond, "packets"); r.out != cold.out {
		t.Errorf("cold %d bytes, warm (%v) %d", len(cold.out), h.calls > calls, len(r.out))
	}
}

// TestReviewSlowReader: a tool that ended in time has, however long its output takes to be written.
func TestReviewSlowReader(t *testing.T) {
	j := newJail(t, Config{})
	job := func() bailey.Job { return bailey.Job{Timeout: time.Second} }
	h := reviewWarm(t, j, job, "exit", "0")
	cold, _ := reviewSlow(t, newJail(t, Config{}), job(), 1500*time.Millisecond, "flood", "100")
	calls := h.calls
	r, _ := reviewSlow(t, j, job(), 1500*time.Millisecond, "flood", "100")
	t.Logf("warm (%v): %+v %v, cold %+v", h.calls > calls, r.exit, r.err, cold.exit)
	if r.exit.TimedOut {
		t.Errorf("the receipt says that the time was up: %+v", r.exit)
	}
}

// TestReviewMountIsLetGo: a file system that is unmounted after a call is not held by a helper.
func TestReviewMountIsLetGo(t *testing.T) {
	ktest.Require(t, "root")
	dir := reviewDir(t)
	if err := syscall.Mount("review-fs", dir, "tmpfs", 0, ""); err != nil {
		t.Skip(err)
	}
	j := newJail(t, Config{})
	held := func() bool {
		for _, h := range j.warm.helpers {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", h.process.Pid))
			if strings.Contains(string(b), "review-fs") {
				return true
			}
		}
		return false
	}
	for range 4 {
		p := place(t, dir, true)
		ask(t, j, bailey.Job{Places: []bailey.Place{p}}, "exit", "0")
		p.File.Close()
		j.warm.busy.Wait()
	}
	if err := syscall.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	ask(t, j, bailey.Job{}, "exit", "0").must(t) // calls go on
	if held() {
		t.Error("unmounted, and held by a helper still")
	}
}

// TestReviewStuckHelperHoldsNobody: a caller that leaves while a helper is still being armed is not held.
func TestReviewStuckHelperHoldsNobody(t *testing.T) {
	j := newJail(t, Config{})
	job := func() bailey.Job { return bailey.Job{} }
	h := reviewWarm(t, j, job, "exit", "0")
	// As renew would find it, were the helper stopped, or its machine slow, when it is to take a cage apart.
	syscall.Kill(h.process.Pid, syscall.SIGSTOP)
	defer syscall.Kill(h.process.Pid, syscall.SIGCONT)
	r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"exit", "0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	j.warm.mu.Lock()
	h.taken = true
	h.mail.Close()
	h.mail = nil // its call is over
	j.warm.mu.Unlock()
	j.warm.busy.Go(func() { j.warm.renew(h) })
	time.Sleep(50 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = r.Start(ctx, nil, bailey.Streams{})
	t.Logf("%v, %v", time.Since(begin), err)
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("held for %v", took)
	}
}

// TestReviewBrood: what a tool leaves as children of the helper's ends with its call too (sound).
func TestReviewBrood(t *testing.T) {
	dir := reviewDir(t)
	j := newJail(t, Config{})
	job := func() bailey.Job { return bailey.Job{Places: []bailey.Place{place(t, dir, true)}} }
	h := reviewWarm(t, j, job, "exit", "0")
	for i := range 10 {
		file := filepath.Join(dir, fmt.Sprint("beat", i))
		calls := h.calls
		r := ask(t, j, job(), "brood", file).must(t)
		if h.calls == calls || r.exit.Code != 0 || !strings.Contains(r.out, "left") {
			t.Fatalf("warm %v: %+v", h.calls > calls, r)
		}
		if !still(t, file) {
			t.Fatal("something outlived its call")
		}
	}
}

// TestReviewSteer: what can be set of PID 1 touches neither the helper nor the next call (sound).
func TestReviewSteer(t *testing.T) {
	j := newJail(t, Config{})
	job := func() bailey.Job { return bailey.Job{} }
	h := reviewWarm(t, j, job, "exit", "0")
	for range 5 {
		calls := h.calls
		t.Logf("warm: %+v", ask(t, j, job(), "steer").must(t))
		j.warm.busy.Wait()
		if h.calls == calls || h.spoilt != nil {
			t.Errorf("not by the helper, or it is spoilt: %v", h.spoilt)
		}
		j.warm.busy.Wait()
	}
	cpu, _ := os.ReadFile(fmt.Sprintf("/proc/%d/limits", h.process.Pid))
	t.Logf("the helper: %s", cpu)
}

// TestReviewNoDescriptorsLeak: calls by a helper, ended in many ways, leave no descriptor behind in the gateway.
func TestReviewNoDescriptorsLeak(t *testing.T) {
	j := newJail(t, Config{})
	job := func() bailey.Job { return bailey.Job{Timeout: 300 * time.Millisecond} }
	h := reviewWarm(t, j, job, "exit", "0")
	count := func() int { e, _ := os.ReadDir("/proc/self/fd"); return len(e) }
	theirs := func() int { e, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.process.Pid)); return len(e) }
	j.warm.busy.Wait()
	before, inside := count(), theirs()
	for range 40 {
		for _, args := range [][]string{{"exit", "3"}, {"die"}, {"killall"}} {
			ask(t, j, job(), args...)
			j.warm.busy.Wait()
		}
	}
	t.Logf("gateway %d, then %d; helper %d, then %d, calls %d", before, count(), inside, theirs(), h.calls)
	if count() > before+4 || theirs() > inside {
		t.Error("descriptors leak")
	}
}

// TestReviewOnce: whatever is killed when, and whoever leaves when, no call runs twice, and none that says it ran did not.
func TestReviewOnce(t *testing.T) {
	for _, onDemand := range []bool{false, true} {
		dir := reviewDir(t)
		j := newJail(t, Config{OnDemand: onDemand})
		p := place(t, dir, true)
		job := func() bailey.Job { return bailey.Job{Places: []bailey.Place{p}} }
		warm, twice, none, late := 0, 0, 0, 0
		for i := range 250 {
			file := filepath.Join(dir, fmt.Sprint("tick", i))
			call := job()
			call.Command, call.Args = probe, []string{"tick", file}
			ctx, cancel := context.WithCancelCause(t.Context())
			r, err := j.Plan(ctx, call)
			if err != nil {
				t.Fatal(err)
			}
			j.warm.mu.Lock()
			var h *helper
			if n := len(j.warm.helpers); n > 0 {
				h = j.warm.helpers[n-1]
			}
			j.warm.mu.Unlock()
			after := time.Duration(rand.IntN(4000)) * time.Microsecond
			var timer *time.Timer
			switch {
			case h != nil && i%3 == 0:
				warm++
				process := h.process
				timer = time.AfterFunc(after, func() { process.Kill() })
			case i%3 == 1:
				timer = time.AfterFunc(after, func() { cancel(errors.New("left")) })
			}
			exit, err := r.Start(ctx, nil, bailey.Streams{})
			if timer != nil {
				timer.Stop()
			}
			r.Close()
			cancel(nil)
			text, _ := os.ReadFile(file)
			switch {
			case len(text) > 1:
				twice++
			case len(text) == 0 && err == nil && exit.Code == 0:
				none++
			case len(text) == 1 && exit == never:
				late++
			}
			if i%5 == 0 {
				j.warm.busy.Wait()
			}
		}
		t.Logf("on demand %v: %d kills; ran twice %d, never %d, and called never run %d", onDemand, warm, twice, none, late)
		if twice+none+late > 0 {
			t.Error("a receipt is not true")
		}
	}
}

// TestReviewInitIsReadyFirst: a tool begins when its PID 1 has let go of its capabilities and descriptors, not before.
// Nice says so: who has more capabilities is not to be set by who has none (cap_task_setnice).
func TestReviewInitIsReadyFirst(t *testing.T) {
	for _, onDemand := range []bool{false, true} {
		j := newJail(t, Config{OnDemand: onDemand})
		h := reviewWarm(t, j, func() bailey.Job { return bailey.Job{} }, "exit", "0")
		early, calls := 0, h.calls
		quit := make(chan struct{})
		for range 3 { // a busy machine
			hog := exec.Command("/bin/sh", "-c", "while :; do :; done")
			if err := hog.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { <-quit; hog.Process.Kill(); hog.Wait() }()
		}
		for range 120 {
			if r := ask(t, j, bailey.Job{}, "steer").must(t); strings.Contains(r.out, "141 0 operation not permitted") {
				early++
			}
		}
		close(quit)
		j.warm.busy.Wait()
		t.Logf("on demand %v: %d of %d calls", onDemand, early, h.calls-calls)
		if early > 0 {
			t.Error("a tool ran beside a PID 1 that had capabilities still")
		}
	}
}
