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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
	"bailey/internal/ktest"
)

// grouped returns a jail whose cages are limited by control groups.
func grouped(t testing.TB) *Jail {
	t.Helper()
	j := newJail(t, Config{})
	if _, err := j.holder.openCgroups(); err != nil {
		ktest.Missing(t, "cgroup", err)
	}
	return j
}

// watched returns a jail without control groups.
func watched(t testing.TB) *Jail {
	j := newJail(t, Config{})
	j.holder.asked, j.holder.why = true, errors.New("withheld")
	return j
}

// holds runs a test in both kinds of jail.
func holds(t *testing.T, test func(t *testing.T, j *Jail)) {
	t.Run(layerCgroup, func(t *testing.T) { test(t, grouped(t)) })
	t.Run(layerWatcher, func(t *testing.T) { test(t, watched(t)) })
}

// TestMemoryInAll checks that the memory of all processes of a cage is limited together, however used, and that shared
// memory counts once.
func TestMemoryInAll(t *testing.T) {
	ktest.Long(t)
	holds(t, func(t *testing.T, j *Jail) {
		for _, c := range []struct {
			args []string
			fits bool
		}{
			{[]string{"crowd", "4", "50", "own"}, true},
			{[]string{"crowd", "4", "200", "own"}, false},
			{[]string{"crowd", "1", "700", "shared"}, false},
			{[]string{"fork", "4", "200"}, true},
		} {
			r := ask(t, j, bailey.Job{}, c.args...).must(t)
			fits := r.first() == "all fit" && r.exit == bailey.Exit{}
			ended := r.exit.Code != 0 && r.exit.Over == "the tool used more than 512 MiB of memory in all" && !strings.Contains(r.out, "all fit")
			if c.fits && !fits || !c.fits && !ended {
				t.Errorf("%v: %+v", c.args, r)
			}
		}
		more := bailey.Job{Limits: bailey.Limits{MemoryBytes: 1 << 30}}
		if r := ask(t, j, more, "crowd", "3", "200", "own").must(t); r.first() != "all fit" {
			t.Errorf("600 MiB of 1024: %+v", r)
		}
	})
}

// TestOverBeforeItBegan checks that a call did not run if its cage ended before there was a tool.
func TestOverBeforeItBegan(t *testing.T) {
	exit, err := (&run{plan: &plan{}}).deriveExit(t.Context(), cageResult{over: "the tool used too much"})
	if exit != never || bailey.KindOf(err) != bailey.Unavailable || !strings.Contains(err.Error(), "too much before it started") {
		t.Errorf("%+v, %v", exit, err)
	}
}

// TestLayerIsWhatHolds checks that the cage names the layer that limits it, and its gaps.
func TestLayerIsWhatHolds(t *testing.T) {
	holds(t, func(t *testing.T, j *Jail) {
		j.chosen = true // the full cage, without a trial that would start processes in advance
		r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"exit", "0"}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		layer := strings.TrimPrefix(t.Name(), "TestLayerIsWhatHolds/")
		cage, absent := r.Cage(), ""
		if layer == layerWatcher {
			absent = layerCgroup
		}
		if ktest.Has("landlock") != nil {
			absent = strings.TrimSpace("landlock " + absent)
		}
		if names := strings.Join(cage.Layers, " "); !strings.Contains(names+" ", " "+layer+" ") || strings.Contains(names, " "+layerCgroup+" ") == (layer == layerWatcher) {
			t.Errorf("layers %s", names)
		}
		if got := strings.Join(cage.Absent, " "); got != absent {
			t.Errorf("absent %q, want %q", got, absent)
		}
		if want := "\n" + layer + " memory 536870912 tasks 80"; !strings.Contains(cage.Plan, want) {
			t.Errorf("the plan lacks %q", want)
		}
		j.holder.removeCgroups() // the layer at the start must be the one that was planned
		j.holder.asked = true
		if layer == layerWatcher {
			return
		}
		exit, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{})
		wants(t, err, layerCgroup, "gateway stop")
		if exit != never {
			t.Errorf("a tool that was planned for a group ran without: %+v", exit)
		}
	})
}

// TestGroupHoldsTheCage checks a cage's control group from outside and inside.
func TestGroupHoldsTheCage(t *testing.T) {
	j := grouped(t)
	j.chosen = true // the full cage, without a trial that would use a group
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := j.Plan(ctx, bailey.Job{Command: probe, Args: []string{"sleep"}, Limits: bailey.Limits{MemoryBytes: 300 << 20, Tasks: 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Start(ctx, bailey.Lent{}, bailey.Streams{})
	}()
	g, _ := j.holder.openCgroups()
	for _, s := range g.sites {
		dir := filepath.Join(s.dir, callPrefix+"1")
		for end := time.Now().Add(time.Minute); strings.Count(readKnob(dir+"/cgroup.procs"), "\n") != 2; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s holds %q, want PID 1 and the tool", dir, readKnob(dir+"/cgroup.procs"))
			}
		}
		for _, set := range append(s.sharedSettings(), s.limitSettings(bounds{memory: 300 << 20, tasks: 20 + ownTasks})...) {
			if got := strings.TrimSpace(readKnob(filepath.Join(dir, set.file))); got != set.value && !(set.optional && got == "") {
				t.Errorf("%s of %s is %q, want %s", set.file, dir, got, set.value)
			}
		}
	}
	cancel()
	<-ended
	inside := ask(t, j, bailey.Job{NeedsProc: true}, "show", "/proc/self/cgroup").must(t)
	for _, controller := range wantedControllers[:] {
		if _, own, ok := ownCgroup(inside.out, controller); !ok || own != "/" {
			t.Errorf("inside, the group of %s is %q", controller, own)
		}
	}
	for _, s := range g.sites {
		if strings.Contains(inside.out, filepath.Base(s.dir)) {
			t.Errorf("the cage sees the name of its group:\n%s", inside.out)
		}
	}
}

// TestAttackMemoryOfAllCalls checks that a call is ended if all calls together use too much memory, even if each keeps
// its own limit.
func TestAttackMemoryOfAllCalls(t *testing.T) {
	ktest.Long(t)
	j := grouped(t)
	g, _ := j.holder.openCgroups()
	for _, s := range g.sites {
		if err := verifySettings(s.dir, s.limitSettings(s.all)); err != nil {
			t.Fatal(err)
		}
		s.all.memory = 550 << 20
		if err := writeSettings(s.dir, s.limitSettings(s.all)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	start := func(mebibytes string, stdout io.Writer) <-chan bailey.Exit {
		exits := make(chan bailey.Exit, 1)
		r, err := j.Plan(ctx, bailey.Job{Command: probe, Args: []string{"hoard", mebibytes, "own"}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			exit, _ := r.Start(ctx, bailey.Lent{}, bailey.Streams{Stdout: stdout})
			r.Close()
			exits <- exit
		}()
		return exits
	}
	full, says := io.Pipe()
	small := start("250", says)
	if _, err := full.Read(make([]byte, 8)); err != nil { // it needs no more memory: the kernel has no cause to end it
		t.Fatal(err)
	}
	large := <-start("400", nil)
	cancel()
	if other := <-small; !strings.Contains(large.Over, "memory") || other.Over != "" {
		t.Errorf("the larger: %+v; the other: %+v", large, other)
	}
}

// TestAttackOutOfMemory checks that if the machine runs out of memory, the kernel ends a tool first, and the tool
// cannot change this.
func TestAttackOutOfMemory(t *testing.T) {
	holds(t, func(t *testing.T, j *Jail) {
		if r := ask(t, j, bailey.Job{NeedsProc: true}, "show", "/proc/self/oom_score_adj").must(t); r.first() != firstToGo {
			t.Errorf("the tool's is %q", r.out)
		}
		j.holder.mu.Lock()
		j.holder.spares = true // as if /proc could not be written
		j.holder.mu.Unlock()
		p, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"exit", "0"}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if lacks := strings.Join(p.Cage().Lacks, "; "); !strings.Contains(lacks, "an end before other processes") {
			t.Errorf("the cage says that it lacks %q", lacks)
		}
	})
}

// TestNoGroupIsLeft checks that many concurrent calls, and abnormal ends, leave no control group.
func TestNoGroupIsLeft(t *testing.T) {
	ktest.Long(t)
	j := grouped(t)
	g, _ := j.holder.openCgroups()
	var dirs []string
	for _, s := range g.sites {
		dirs = append(dirs, s.dir)
	}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			args := [][]string{{"exit", "3"}, {"die"}, {"sleep"}, {"killall"}}[i%4]
			job := bailey.Job{Timeout: 20 * time.Second}
			if args[0] == "sleep" {
				job.Timeout = 10 * time.Millisecond // may expire before the cage is built
			}
			ask(t, j, job, args...)
		})
	}
	wg.Wait()
	for _, dir := range dirs {
		var left []string
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			// each armed process has a group
			if left, _ = filepath.Glob(dir + "/" + callPrefix + "*"); len(left) <= len(j.cages().stock.all()) {
				break
			}
		}
		if len(left) > len(j.cages().stock.all()) {
			t.Errorf("%d groups are left after all calls", len(left))
		}
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			entries, _ := os.ReadDir(dir)
			t.Errorf("%s is left, with %d entries", dir, len(entries))
		}
	}
}

// TestDismissedLeavesNothing checks that a PID 1 without a start request leaves nothing.
func TestDismissedLeavesNothing(t *testing.T) {
	ktest.Long(t)
	holds(t, func(t *testing.T, j *Jail) {
		open := 0
		for i := range 20 {
			c, err := j.spawnChild(inside.Name)
			if err != nil {
				t.Fatal(err)
			}
			c.closeAndWait()
			if i == 0 {
				open = count(t, "/proc/self/fd")
			}
		}
		if now := count(t, "/proc/self/fd"); now > open+2 {
			t.Errorf("%d descriptors became %d", open, now)
		}
		g, _ := j.holder.openCgroups()
		if g == nil {
			return
		}
		g.gone.Wait()
		for _, s := range g.sites {
			if left, _ := filepath.Glob(s.dir + "/" + callPrefix + "*"); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		}
	})
}

// TestNoGroupNoCall checks that if a group cannot be made or limited, nothing runs and nothing remains.
func TestNoGroupNoCall(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	for name, spoil := range map[string]func(s *gatewayCgroup){
		"no directory":  func(s *gatewayCgroup) { s.dir += "-gone" },
		"no such limit": func(s *gatewayCgroup) { s.version, s.controllers = 3-s.version, wantedControllers[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			j := grouped(t)
			g, _ := j.holder.openCgroups()
			for i := range g.sites { // one at a time, to check that groups made before it are removed
				kept := *g.sites[i]
				j.cages().stock.arming.Lock() // guards the sites
				spoil(g.sites[i])
				j.cages().stock.arming.Unlock()
				r := ask(t, j, bailey.Job{}, "exit", "0")
				wants(t, r.err, layerCgroup, "gateway stop")
				if r.exit != never {
					t.Errorf("it ran: %+v", r.exit)
				}
				j.cages().stock.arming.Lock()
				g.gone.Wait()
				*g.sites[i] = kept
				j.cages().stock.arming.Unlock()
			}
			g.gone.Wait()
			for _, s := range g.sites {
				// each armed process has a group
				if left, _ := filepath.Glob(s.dir + "/" + callPrefix + "*"); len(left) > len(j.cages().stock.all()) {
					t.Errorf("left: %v", left)
				}
			}
		})
	}
}

// startGateway starts a gateway in a subprocess with a running call. It returns the gateway and the file that its tool
// updates.
func startGateway(t *testing.T) (*exec.Cmd, string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "beat")
	gateway := exec.Command("/proc/self/exe")
	gateway.Env = append(os.Environ(), gatewayEnv+"="+dir, probeEnv+"="+probe)
	var log bytes.Buffer
	gateway.Stderr = &log
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gateway.Process.Kill(); gateway.Wait() })
	for begin := time.Now(); !exists(file); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("the tool never began: %s", log.String())
		}
	}
	return gateway, file
}

// TestDeadGatewayIsSwept checks that the next gateway removes the groups of one that was killed during a call, and none
// of a live one.
func TestDeadGatewayIsSwept(t *testing.T) {
	ktest.Long(t)
	j := grouped(t)
	mappable(t)
	g, _ := j.holder.openCgroups()
	sites := func(pid int) (n int) {
		for _, s := range g.sites {
			found, _ := filepath.Glob(fmt.Sprintf("%s/%d-*/%s*", s.base, pid, callPrefix))
			n += len(found)
		}
		return n
	}
	live, still2 := startGateway(t)
	var dead *exec.Cmd
	for left, tries := 0, 0; left == 0; tries++ {
		if tries == 10 {
			t.Fatal("a gateway that was killed in mid-call leaves no group, ten times")
		}
		// Every gateway of this user sweeps, also in a parallel test. If that was first, this test must kill another
		// gateway.
		var beat string
		dead, beat = startGateway(t)
		if sites(dead.Process.Pid) == 0 {
			t.Fatal("a gateway in mid-call has no group")
		}
		dead.Process.Kill()
		dead.Wait()
		left = sites(dead.Process.Pid) // without delay: parallel tests start gateways often
		for begin := time.Now(); !still(t, beat); {
			if time.Since(begin) > time.Minute {
				t.Fatal("the gateway that was killed left a tool that lives")
			}
		}
	}
	next, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if r := ask(t, next, bailey.Job{}, "exit", "0").must(t); r.exit.Code != 0 {
		t.Errorf("%+v", r)
	}
	if n := sites(dead.Process.Pid); n != 0 {
		t.Errorf("%d groups of a dead gateway are left", n)
	}
	if sites(live.Process.Pid) == 0 || still(t, still2) {
		t.Error("a gateway that lives was swept")
	}
	for _, s := range g.sites {
		if !exists(s.dir) {
			t.Errorf("%s of a gateway without a call was swept", s.dir)
		}
	}
}

// TestNoCgroups checks that on hosts without delegated or writable control groups calls run under the watcher, and the
// diagnosis names the remedy.
func TestNoCgroups(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns", "netns")
	if os.Getenv(lesserEnv) == "" && os.Geteuid() == 0 {
		t.Run("read-only", func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe", "-test.v", "-test.count=1", "-test.run=^TestNoCgroups$")
			cmd.Env = append(os.Environ(), lesserEnv+"=read-only control groups", probeEnv+"="+probe, "BAILEY_KERNEL=")
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestNoCgroups") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	cure := "Delegate=yes"
	if os.Getenv(lesserEnv) == "read-only control groups" {
		cure = "read-only"
		sealCgroups(t)
	} else if delegated := (&enforcerFactory{}); os.Getenv(lesserEnv) == "" && os.Geteuid() != 0 && delegated.has() {
		delegated.removeCgroups()
		ktest.Missing(t, "undelegated", errors.New("this user has a control group"))
	} else if lesser(t, "no delegation", unix.CAP_SYS_ADMIN) {
		return
	}
	j, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"exit", "5"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	exit, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{})
	if err != nil || exit.Code != 5 || strings.Join(r.Cage().Absent, " ") != layerCgroup {
		t.Errorf("%+v, %v, absent %v", exit, err, r.Cage().Absent)
	}
	seen := map[string]error{}
	for _, l := range j.Diagnose(t.Context()) {
		seen[l.Name] = l.Err
	}
	wants(t, seen[layerCgroup], layerCgroup, cure)
	if err, ok := seen[layerWatcher]; err != nil || !ok {
		t.Errorf("the watcher: %v, %v", ok, err)
	}
}

func (h *enforcerFactory) has() bool { g, _ := h.openCgroups(); return g != nil }

// sealCgroups makes all hierarchies read-only in this process's mount namespace, which must be its own.
func sealCgroups(t *testing.T) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range cgroupMounts(string(text)) {
		if err := unix.Mount("", m.point, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWatchFollowsNoOther checks that a reused pid is not followed, and that a process that has ended is not an error.
// If the watcher cannot see its PID 1, that must be one.
func TestWatchFollowsNoOther(t *testing.T) {
	sleeper := exec.Command("/proc/self/exe", "-test.run=^$")
	sleeper.Env = append(os.Environ(), probeEnv+"="+probe)
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	sleeper.Wait()
	w := &usageWatcher{process: &os.Process{Pid: 1 << 30}}
	for _, c := range []struct {
		name        string
		pid, parent int
		counted     bool
	}{{"a child", os.Getpid(), os.Getppid(), true}, {"another's child", os.Getpid(), os.Getppid() + 1, false}, {"gone", sleeper.Process.Pid, os.Getpid(), false}} {
		var sum usage
		_, err := w.addDescendant(&sum, c.pid, c.parent, time.Time{})
		if errors.Is(err, errNoChildren) {
			ktest.Missing(t, "proc-children", err)
		}
		if err != nil || (sum.memory > 0) != c.counted || (sum.tasks > 0) != c.counted {
			t.Errorf("%s: %+v, %v", c.name, sum, err)
		}
	}
	if _, err := newWatch(sleeper.Process, nil); err == nil {
		t.Error("a PID 1 that is gone is watched")
	}
}

// TestWatchSeesAll checks that every process and thread below PID 1 is counted.
func TestWatchSeesAll(t *testing.T) {
	w, err := newWatch(&os.Process{Pid: os.Getpid()}, nil) // this process takes the role of PID 1
	if errors.Is(err, errNoChildren) {
		ktest.Missing(t, "proc-children", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(w.root)
	before, err := w.measureUsage(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("/bin/sh", "-c", "sleep 20 & sleep 20 & echo begun; wait")
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		ktest.Missing(t, "/bin/sh", err)
	}
	defer shell.Wait()
	defer func() { // the sleeps are children of the shell, so this process cannot wait for them
		kids, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", shell.Process.Pid, shell.Process.Pid))
		for _, kid := range strings.Fields(string(kids)) {
			if pid, err := strconv.Atoi(kid); err == nil {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		shell.Process.Kill()
	}()
	out.Read(make([]byte, 6))
	after, err := w.measureUsage(time.Now().Add(time.Minute))
	if err != nil || after.tasks < before.tasks+3 {
		t.Errorf("%+v became %+v with three more processes, %v", before, after, err)
	}
}
