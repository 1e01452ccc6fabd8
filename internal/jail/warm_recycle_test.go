//go:build linux

package jail

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
	"bailey/test/since"
)

// vanishes waits until a process has ended.
func vanishes(t *testing.T, what string, pid int) {
	t.Helper()
	for begin := time.Now(); alive(pid); time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Errorf("%s: the helper lives", what)
			return
		}
	}
}

// TestHelpersAreRecycled checks that a helper ends after its calls, after an idle time, if other helpers are needed
// more, and with its jail.
func TestHelpersAreRecycled(t *testing.T) {
	ktest.Long(t)
	w := warmJail(t, Config{})
	h := w.heat(t, bailey.Job{}, "exit", "0")
	h.calls = maxCalls - 2
	for want := range 2 {
		if r := ask(t, w.Jail, bailey.Job{}, "exit", "3"); r.err != nil || r.exit.Code != 3 {
			t.Errorf("%+v", r)
		}
		if kept := w.keeps(h); kept != (want == 0) {
			t.Errorf("after %d of %d calls the helper is kept: %v", h.calls, maxCalls, kept)
		}
	}
	vanishes(t, "worn", h.process.Pid)
	if next := w.heat(t, bailey.Job{}, "exit", "0"); next == h || next.calls != 0 {
		t.Error("it serves again")
	}

	plan := func(i int) bailey.Job { return bailey.Job{Limits: bailey.Limits{Tasks: 20 + i}} }
	first := w.heat(t, plan(0), "exit", "0")
	for i := 1; i < maxHelpers+2; i++ {
		r, h := w.hot(t, plan(i), "exit", "3")
		if r.err != nil || r.exit.Code != 3 || h.digest == first.digest {
			t.Errorf("%+v, by the helper of another plan: %v", r, h.digest == first.digest)
		}
		if n := len(w.cages().all()); n > maxHelpers {
			t.Errorf("%d helpers", n)
		}
	}
	vanishes(t, "the least recently used", first.process.Pid)

	all := w.cages().all()
	w.cages().mu.Lock()
	all[0].used = time.Now().Add(-idleTime)
	w.cages().mu.Unlock()
	w.cages().dismissUnused()
	w.cages().busy.Wait()
	vanishes(t, "idle", all[0].process.Pid)
	if !w.keeps(all[1]) || !alive(all[1].process.Pid) {
		t.Error("one that was used is gone as well")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	for _, h := range all {
		vanishes(t, "after Close", h.process.Pid)
	}
	w.shut.Store(false)
	for range 3 {
		if r := ask(t, w.Jail, bailey.Job{}, "exit", "3"); r.err != nil || r.exit.Code != 3 || len(w.cages().all()) > 0 {
			t.Errorf("after Close: %+v, %d helpers", r, len(w.cages().all()))
		}
	}
}

const mountsEnv = "BAILEY_JAIL_MOUNTS"

// TestHelperOfOtherMounts checks that a helper, which shows the mounts of its start, serves no call after they have
// changed.
func TestHelperOfOtherMounts(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "root", "userns")
	if os.Getenv(mountsEnv) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.v", "-test.count=1", "-test.run=^TestHelperOfOtherMounts$")
		cmd.Env = append(os.Environ(), mountsEnv+"=own", probeEnv+"="+probe)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestHelperOfOtherMounts") && !strings.Contains(string(out), "--- SKIP") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	w := warmJail(t, Config{})
	dir := enterable(t)
	put(t, filepath.Join(dir, "below", "note"), "before ", 0o644)
	job := bailey.Job{Read: []string{dir}}
	r, h := w.hot(t, job, "show", filepath.Join(dir, "below", "note"))
	if r.out != "before ok\n" {
		t.Fatalf("%+v", r)
	}
	if !w.keeps(h) {
		t.Fatal("the helper is gone before anything was mounted")
	}
	if err := unix.Mount("tmpfs", filepath.Join(dir, "below"), "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "below", "note"), "after ", 0o644)
	w.shut.Store(false)
	r = ask(t, w.Jail, job, "show", filepath.Join(dir, "below", "note"))
	if r.err != nil || strings.Contains(r.out, "before") || h.calls != 1 {
		t.Errorf("after a mount: %+v, the old helper has served %d", r, h.calls)
	}
	w.cages().busy.Wait()
	vanishes(t, "after a mount", h.process.Pid)
}

// A census counts resources that calls could leave, of this process and all its descendants.
type census struct {
	descriptors, mounts, namespaces, groups, processes, zombies int
	rss                                                         int // KiB of this process
	helper                                                      int // KiB of the largest descendant
}

func (w *warmed) census(t *testing.T) (c census) {
	t.Helper()
	w.cages().busy.Wait()
	w.cages().stock.empty() // their number may vary
	if g, _ := w.holder.openCgroups(); g != nil {
		g.gone.Wait()
		for _, s := range g.sites {
			entries, _ := os.ReadDir(s.dir)
			for _, e := range entries {
				if e.IsDir() {
					c.groups++
				}
			}
		}
	}
	parents := map[int]int{}
	states := map[int]string{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		b, _ := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(b), ") ")
		words := strings.Fields(rest)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if len(words) > 1 {
			states[pid] = words[0]
			parents[pid], _ = strconv.Atoi(words[1])
		}
	}
	names := map[string]bool{}
	for pid := range parents {
		up := pid
		for up > 1 && up != os.Getpid() {
			up = parents[up]
		}
		if up != os.Getpid() {
			continue
		}
		c.processes++
		if states[pid] == "Z" {
			c.zombies++
		}
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/ns/*", pid))
		for _, link := range links {
			if name, err := os.Readlink(link); err == nil {
				names[name] = true
			}
		}
		fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		c.descriptors += len(fds)
		if size := rss(pid); pid == os.Getpid() {
			c.rss = size
		} else {
			c.helper = max(c.helper, size)
		}
	}
	c.namespaces = len(names)
	c.mounts = lines(t, "/proc/self/mountinfo")
	return c
}

func rss(pid int) (kib int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if _, rest, ok := strings.Cut(string(b), "VmRSS:"); ok {
		fmt.Sscan(rest, &kib)
	}
	return kib
}

// TestTenThousandCalls checks that resource use does not grow with the number of calls.
func TestTenThousandCalls(t *testing.T) {
	ktest.Long(t)
	w := warmJail(t, Config{})
	calls := 700 // more than one helper serves
	if since.Due(t, "internal/jail") {
		calls = 10000
	}
	some := func(n int) {
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				for k := range n / 2 {
					args := []string{"exit", "0"}
					if k%20 == i { // most calls are short
						args = []string{"litter"}
					}
					if r := ask(t, w.Jail, bailey.Job{}, args...); r.err != nil || r.exit.Code != 0 {
						t.Errorf("%+v", r)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	before := w.bare(t)
	w.heat(t, bailey.Job{}, "exit", "0")
	w.shut.Store(false)
	some(100)
	w.heat(t, bailey.Job{}, "exit", "0")
	w.shut.Store(false)
	few := w.census(t)
	cold := w.cold.Load()
	some(calls)
	w.heat(t, bailey.Job{}, "exit", "0")
	w.shut.Store(false)
	many := w.census(t)
	t.Logf("after 100 calls %+v, after %d more %+v, of which %d cold", few, calls, many, w.cold.Load()-cold)
	if cold := w.cold.Load() - cold; int(cold) > calls/3 { // on a busy machine a helper needs time to start
		t.Errorf("%d first processes of cold cages for %d calls", cold, calls)
	}
	// One helper and one cage more or less may wait: each has a few processes, some dozen descriptors and ten
	// namespaces.
	for name, c := range map[string][3]int{"descriptors": {few.descriptors, many.descriptors, 60}, "mounts": {few.mounts, many.mounts, 0},
		"namespaces": {few.namespaces, many.namespaces, 24}, "groups": {few.groups, many.groups, 12}, "processes": {few.processes, many.processes, 8},
		"zombies": {0, many.zombies, 0}, "KiB": {few.rss, many.rss, 32 << 10}, "KiB of a helper": {few.helper, many.helper, 4 << 10}} {
		if c[1] > c[0]+c[2] {
			t.Errorf("%d %s became %d", c[0], name, c[1])
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if after := w.bare(t); after.processes != 1 || after.zombies > 0 || after.mounts != before.mounts || after.namespaces > before.namespaces || after.descriptors > before.descriptors+2 {
		t.Errorf("before the first call %+v, after Close %+v", before, after)
	}
}

// bare is a census without groups, which would open the holder.
func (w *warmed) bare(t *testing.T) census {
	o := &warmed{Jail: &Jail{warm: &warmCages{}}}
	o.holder.asked = true
	return o.census(t)
}
