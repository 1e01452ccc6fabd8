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

// hostDir returns a directory that is neither below a cage's own /tmp nor below its home.
func hostDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "bailey-warm-")
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o777)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// askUntilWarm makes calls until a helper has served one, and returns that helper.
func askUntilWarm(t *testing.T, j *Jail, job func() bailey.Job, args ...string) *helper {
	t.Helper()
	if _, err := j.holder.openCgroups(); err != nil {
		ktest.Missing(t, "cgroup", err)
	}
	for range 12 {
		ask(t, j, job(), args...).must(t)
		j.cages().busy.Wait()
		j.cages().mu.Lock()
		for _, h := range j.cages().helpers {
			if h.calls > 0 && h.spoilt == nil {
				j.cages().mu.Unlock()
				return h
			}
		}
		j.cages().mu.Unlock()
	}
	t.Fatal("no warm helper on this host")
	return nil
}

// askWarm makes a call while a helper waits. If that helper did not serve it, it tries again: a helper serves no more
// once anything was mounted on the host, since its mounts are outdated.
func askWarm(t *testing.T, j *Jail, job func() bailey.Job, args ...string) (told, *helper) {
	t.Helper()
	for range 12 {
		h := askUntilWarm(t, j, job, "exit", "0")
		calls := h.calls
		r := ask(t, j, job(), args...).must(t)
		j.cages().busy.Wait()
		if h.calls > calls {
			return r, h
		}
	}
	t.Fatal("no call was served by the helper that waited")
	return told{}, nil
}

// coldly makes enough calls to start a helper. None may be started, since the host could remove the plan's mounts.
func coldly(t *testing.T, j *Jail, job func() bailey.Job, args ...string) {
	t.Helper()
	for range 4 {
		ask(t, j, job(), args...).must(t)
		j.cages().busy.Wait()
	}
	if len(j.cages().helpers) > 0 {
		t.Fatal("a helper keeps a mount in a directory of the host's")
	}
}

func hostFile(t *testing.T, path, text string) {
	t.Helper()
	os.MkdirAll(filepath.Dir(path), 0o777)
	os.Chmod(filepath.Dir(path), 0o777)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestWarmMaskReplaced checks that a masked file that is replaced by rename stays masked in the next call.
func TestWarmMaskReplaced(t *testing.T) {
	ktest.Long(t)
	for _, write := range []bool{false, true} {
		t.Run(fmt.Sprint("write=", write), func(t *testing.T) {
			dir := hostDir(t)
			secret := filepath.Join(dir, "secret")
			hostFile(t, secret, "SECRET-1")
			j := plainJail(t, Config{Mask: []string{secret}})
			job := func() bailey.Job { return bailey.Job{Places: []bailey.Place{place(t, dir, write)}} }
			coldly(t, j, job, "show", secret)
			if r := ask(t, j, job(), "show", secret).must(t); strings.Contains(r.out, "SECRET") {
				t.Fatalf("before: %+v", r)
			}
			j.cages().busy.Wait()
			hostFile(t, secret+".new", "SECRET-2")
			if err := os.Rename(secret+".new", secret); err != nil {
				t.Fatal(err)
			}
			r := ask(t, j, job(), "show", secret).must(t)
			if strings.Contains(r.out, "SECRET") {
				t.Errorf("a masked file was read: %q", r.out)
			}
		})
	}
}

// TestWarmMaskedDirectoryReplaced checks the same for a directory above a mask, in a read-only place.
func TestWarmMaskedDirectoryReplaced(t *testing.T) {
	dir := hostDir(t)
	secret := filepath.Join(dir, "holder", "secret", "key")
	hostFile(t, secret, "SECRET-1")
	j := plainJail(t, Config{Mask: []string{filepath.Dir(secret)}})
	job := func() bailey.Job { return bailey.Job{Places: []bailey.Place{place(t, dir, false)}} }
	coldly(t, j, job, "show", secret)
	if err := os.Rename(filepath.Join(dir, "holder"), filepath.Join(dir, "holder.old")); err != nil {
		t.Fatal(err)
	}
	hostFile(t, secret, "SECRET-2")
	r := ask(t, j, job(), "show", secret).must(t)
	if strings.Contains(r.out, "SECRET") {
		t.Errorf("a masked file was read: %q", r.out)
	}
}

// TestWarmNestedPlaceReplaced checks that a read-only place in a writable one stays read-only if it is removed and made
// again.
func TestWarmNestedPlaceReplaced(t *testing.T) {
	ktest.Long(t)
	dir := hostDir(t)
	inner := filepath.Join(dir, "inner")
	target := filepath.Join(inner, "file")
	os.Mkdir(inner, 0o777)
	os.Chmod(inner, 0o777)
	j := plainJail(t, Config{})
	// The descriptors must be closed with their call, like the gate's: an open one would prevent the reuse of the inode
	// number.
	call := func(args ...string) told {
		outer, in := place(t, dir, true), place(t, inner, false)
		defer outer.File.Close()
		defer in.File.Close()
		return ask(t, j, bailey.Job{Places: []bailey.Place{outer, in}}, args...).must(t)
	}
	for range 4 {
		if r := call("write", target); strings.HasPrefix(r.out, "ok") {
			t.Fatalf("before: %+v", r)
		}
		j.cages().busy.Wait()
	}
	if len(j.cages().helpers) > 0 {
		t.Fatal("a helper keeps a mount in a directory of the host's")
	}
	os.RemoveAll(inner)
	os.Mkdir(inner, 0o777)
	os.Chmod(inner, 0o777)
	if r := call("write", target); strings.HasPrefix(r.out, "ok") {
		t.Error("written in a place that the call only reads")
	}
}

// TestWarmCancelledIsNotBegun checks that a call that is cancelled before its tool is executed never begins.
func TestWarmCancelledIsNotBegun(t *testing.T) {
	ktest.Long(t)
	dir := hostDir(t)
	target := filepath.Join(dir, "file")
	j := plainJail(t, Config{OnDemand: true})
	job := func() bailey.Job { return bailey.Job{Places: []bailey.Place{place(t, dir, true)}} }
	h := askUntilWarm(t, j, job, "write", target)
	os.Remove(target)
	for range 5 {
		ctx, cancel := context.WithCancelCause(t.Context())
		plan := job()
		plan.Command, plan.Args = probe, []string{"write", target}
		r, err := j.Plan(ctx, plan)
		if err != nil {
			t.Fatal(err)
		}
		syscall.Kill(h.process.Pid, syscall.SIGSTOP)  // simulates a slow machine
		time.AfterFunc(100*time.Millisecond, func() { // in this order, even if both are late
			cancel(bailey.Gentle{Cause: errors.New("the caller left")})
			time.AfterFunc(200*time.Millisecond, func() { syscall.Kill(h.process.Pid, syscall.SIGCONT) })
		})
		var out bytes.Buffer
		exit, err := r.Start(ctx, bailey.Lent{}, bailey.Streams{Stdout: &out, Stderr: &out})
		r.Close()
		_, serr := os.Stat(target)
		t.Logf("%+v %v; written: %v", exit, err, serr == nil)
		if serr == nil {
			t.Fatal("a call began after it was cancelled")
		}
		j.cages().busy.Wait()
		if h.spoilt != nil {
			break
		}
	}
}

// TestWarmTimeIsNotDoubled checks that a call does not get its time again if it expires before its tool is executed.
func TestWarmTimeIsNotDoubled(t *testing.T) {
	ktest.Long(t)
	var took time.Duration
	// a busy machine may itself take this long
	for limit := 300 * time.Millisecond; limit < 10*time.Second; limit *= 2 {
		j := plainJail(t, Config{OnDemand: true})
		h := askUntilWarm(t, j, func() bailey.Job { return bailey.Job{} }, "exit", "0")
		syscall.Kill(h.process.Pid, syscall.SIGSTOP)
		goon := time.AfterFunc(limit+300*time.Millisecond, func() { syscall.Kill(h.process.Pid, syscall.SIGCONT) })
		begin := time.Now()
		r := ask(t, j, bailey.Job{Timeout: limit}, "sleep")
		took = time.Since(begin)
		goon.Stop()
		t.Logf("%v of %v: %+v", took, limit, r)
		if took < 2*limit {
			return
		}
	}
	t.Errorf("the last call took %v, twice its time or more", took)
}

// slow is a writer that waits before each write.
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

// askSlowly calls the probe with a writer that takes d for each write, and returns how long the call took.
func askSlowly(t *testing.T, j *Jail, job bailey.Job, d time.Duration, args ...string) (told, time.Duration) {
	t.Helper()
	job.Command, job.Args = probe, args
	r, err := j.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out, begin := &slow{d: d}, time.Now()
	exit, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: out, Stderr: &bytes.Buffer{}})
	return told{exit: exit, err: err, out: out.String()}, time.Since(begin)
}

// TestWarmFloodAfterTheEnd checks that a tool that has exited has ended, even if processes that it left still write.
func TestWarmFloodAfterTheEnd(t *testing.T) {
	ktest.Long(t)
	j := plainJail(t, Config{})
	job := func() bailey.Job { return bailey.Job{Timeout: 3 * time.Second} }
	cold, took := askSlowly(t, j, job(), 2*time.Millisecond, "leaveflood")
	t.Logf("cold after %v: %+v, %v", took, cold.exit, cold.err)
	h := askUntilWarm(t, j, job, "leaveflood", "0")
	calls := h.calls
	r, took := askSlowly(t, j, job(), 2*time.Millisecond, "leaveflood")
	t.Logf("warm (%v) after %v: %+v, %v", h.calls > calls, took, r.exit, r.err)
	if r.exit != cold.exit {
		t.Errorf("cold %+v, warm %+v", cold.exit, r.exit)
	}
}

// TestWarmPackets checks that all output of a tool arrives, in pieces of any size.
func TestWarmPackets(t *testing.T) {
	ktest.Long(t)
	j := plainJail(t, Config{})
	job := func() bailey.Job { return bailey.Job{} }
	cold, _ := askSlowly(t, j, job(), 20*time.Millisecond, "packets")
	h := askUntilWarm(t, j, job, "packets")
	calls := h.calls
	if r, _ := askSlowly(t, j, job(), 20*time.Millisecond, "packets"); r.out != cold.out {
		t.Errorf("cold %d bytes, warm (%v) %d", len(cold.out), h.calls > calls, len(r.out))
	}
}

// TestWarmSlowReader checks that a tool that ended in time is reported so, even if its output takes long to be written.
func TestWarmSlowReader(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	var r, cold told
	// on a busy machine a tool may not end in time
	for timeout := 100 * time.Millisecond; timeout < 10*time.Second; timeout *= 2 {
		j := plainJail(t, Config{})
		h := askUntilWarm(t, j, func() bailey.Job { return bailey.Job{} }, "exit", "0")
		calls := h.calls
		r, _ = askSlowly(t, j, bailey.Job{Timeout: timeout}, timeout*3/2, "saysandstays")
		cold, _ = askSlowly(t, newJail(t, Config{}), bailey.Job{Timeout: timeout}, timeout*3/2, "saysandstays")
		t.Logf("with %v warm (%v): %+v %v, cold %+v %v", timeout, h.calls > calls, r.exit, r.err, cold.exit, cold.err)
		if r.err == nil && cold.err == nil && !r.exit.TimedOut && !cold.exit.TimedOut {
			return
		}
	}
	t.Errorf("the receipt says that the time was up: %+v, cold %+v", r.exit, cold.exit)
}

// TestWarmMountIsLetGo checks that no helper holds a file system that is unmounted after a call.
func TestWarmMountIsLetGo(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "root")
	const mount = "bailey-let-go"
	dir := hostDir(t)
	if err := syscall.Mount(mount, dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	j := plainJail(t, Config{})
	held := func() bool {
		for _, h := range j.cages().all() {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", h.process.Pid))
			if strings.Contains(string(b), mount) {
				return true
			}
		}
		return false
	}
	for range 4 {
		p := place(t, dir, true)
		ask(t, j, bailey.Job{Places: []bailey.Place{p}}, "exit", "0")
		p.File.Close()
		j.cages().busy.Wait()
	}
	if err := syscall.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	// an unused helper would end anyway after idleTime
	for end := time.Now().Add(idleTime / 2); ; time.Sleep(50 * time.Millisecond) {
		ask(t, j, bailey.Job{}, "exit", "0").must(t) // calls continue
		if !held() {
			break
		}
		if time.Now().After(end) {
			t.Fatal("unmounted, and held by a helper still")
		}
	}
}

// TestWarmStuckHelperHoldsNobody checks that a caller that leaves while a helper is armed is not delayed.
func TestWarmStuckHelperHoldsNobody(t *testing.T) {
	j := plainJail(t, Config{Answer: 10 * time.Minute})
	job := func() bailey.Job { return bailey.Job{} }
	h := askUntilWarm(t, j, job, "exit", "0")
	// The state that renew finds if the helper is stopped, or slow, before the cage is taken apart.
	syscall.Kill(h.process.Pid, syscall.SIGSTOP)
	defer syscall.Kill(h.process.Pid, syscall.SIGCONT)
	r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"exit", "0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	j.cages().mu.Lock()
	h.taken = true
	h.mail.Close()
	h.mail = nil // its call has ended
	j.cages().mu.Unlock()
	j.cages().busy.Go(func() { j.cages().takeBackHelper(h) })
	time.Sleep(50 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = r.Start(ctx, bailey.Lent{}, bailey.Streams{})
	t.Logf("%v, %v", time.Since(begin), err)
	if took := time.Since(begin); took > time.Minute { // and not as long as the answer time of the helper
		t.Errorf("held for %v", took)
	}
}

// TestWarmBrood checks that processes left as children of the helper also end with their call.
func TestWarmBrood(t *testing.T) {
	ktest.Long(t)
	dir := hostDir(t)
	j := plainJail(t, Config{})
	job := func() bailey.Job { return bailey.Job{Places: []bailey.Place{place(t, dir, true)}} }
	for i := range 10 {
		file := filepath.Join(dir, fmt.Sprint("beat", i))
		r, _ := askWarm(t, j, job, "brood", file)
		if r.exit.Code != 0 || !strings.Contains(r.out, "left") {
			t.Fatalf("%+v", r)
		}
		if !still(t, file) {
			t.Fatal("something outlived its call")
		}
	}
}

// TestWarmSteer checks that settings of PID 1 that a tool can change affect neither the helper nor the next call.
func TestWarmSteer(t *testing.T) {
	j := plainJail(t, Config{})
	job := func() bailey.Job { return bailey.Job{} }
	var h *helper
	for range 5 {
		var r told
		r, h = askWarm(t, j, job, "steer")
		t.Logf("warm: %+v", r)
		if h.spoilt != nil {
			t.Errorf("it is spoilt: %v", h.spoilt)
		}
	}
	cpu, _ := os.ReadFile(fmt.Sprintf("/proc/%d/limits", h.process.Pid))
	t.Logf("the helper: %s", cpu)
}

// TestWarmNoDescriptorsLeak checks that a helper's calls leave no descriptor in the gateway, however they end.
func TestWarmNoDescriptorsLeak(t *testing.T) {
	ktest.Long(t)
	j := plainJail(t, Config{})
	job := func() bailey.Job { return bailey.Job{Timeout: 300 * time.Millisecond} }
	h := askUntilWarm(t, j, job, "exit", "0")
	count := func() int { e, _ := os.ReadDir("/proc/self/fd"); return len(e) }
	theirs := func() int { e, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.process.Pid)); return len(e) }
	j.cages().busy.Wait()
	before, inside := count(), theirs()
	for range 40 {
		for _, args := range [][]string{{"exit", "3"}, {"die"}, {"killall"}} {
			ask(t, j, job(), args...)
			j.cages().busy.Wait()
		}
	}
	for range 100 { // a cage that is being built briefly has descriptors of its own
		if count() <= before+4 && theirs() <= inside {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("gateway %d, then %d; helper %d, then %d, calls %d", before, count(), inside, theirs(), h.calls)
	if count() > before+4 || theirs() > inside {
		t.Error("descriptors leak")
	}
}

// TestWarmOnce checks that, whenever a process is killed or a caller leaves, no call runs twice, and the receipt says
// correctly whether it ran.
func TestWarmOnce(t *testing.T) {
	ktest.Long(t)
	for _, onDemand := range []bool{false, true} {
		dir := hostDir(t)
		j := plainJail(t, Config{OnDemand: onDemand})
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
			j.cages().mu.Lock()
			var h *helper
			if n := len(j.cages().helpers); n > 0 {
				h = j.cages().helpers[n-1]
			}
			j.cages().mu.Unlock()
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
			exit, err := r.Start(ctx, bailey.Lent{}, bailey.Streams{})
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
				j.cages().busy.Wait()
			}
		}
		t.Logf("on demand %v: %d kills; ran twice %d, never %d, and called never run %d", onDemand, warm, twice, none, late)
		if twice+none+late > 0 {
			t.Error("a receipt is not true")
		}
	}
}

// TestWarmInitIsReadyFirst checks that a tool begins only after its PID 1 has dropped capabilities and descriptors.
// setpriority shows this: a process without capabilities cannot change one that has more (cap_task_setnice).
func TestWarmInitIsReadyFirst(t *testing.T) {
	ktest.Long(t)
	for _, onDemand := range []bool{false, true} {
		j := plainJail(t, Config{OnDemand: onDemand})
		h := askUntilWarm(t, j, func() bailey.Job { return bailey.Job{} }, "exit", "0")
		early, calls := 0, h.calls
		quit := make(chan struct{})
		for range 3 { // simulates a busy machine
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
		j.cages().busy.Wait()
		t.Logf("on demand %v: %d of %d calls", onDemand, early, h.calls-calls)
		if early > 0 {
			t.Error("a tool ran beside a PID 1 that had capabilities still")
		}
	}
}
