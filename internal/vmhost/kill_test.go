//go:build linux

package vmhost

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bailey/internal/hostapi"
	"bailey/internal/ktest"
)

// bootMB is the memory of a sandbox for which there is no warm template.
const bootMB = 112

// runJob owns a directory, performs an operation, and prints its steps. It kills itself at the given one.
func runJob(job []string) error {
	operation, dir, kernel, guests, last := job[0], job[1], job[2], job[3], job[4]
	if operation == "full" {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return fillDisk(ctx, dir, kernel, guests, last)
	}
	c, begun := configFor(dir, kernel, guests), false
	c.step = func(name string) {
		if !begun {
			return
		}
		fmt.Println(name)
		if name == last {
			unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	h, err := New(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	free, err := h.ownDirectory()
	if err != nil {
		return err
	}
	defer free()
	if err := h.adoptAll(ctx); err != nil {
		return err
	}
	defer h.releaseAll()
	begun = true
	return perform(ctx, h, operation)
}

// perform performs an operation with the sandbox "source" or, for start, "stopped".
func perform(ctx context.Context, h *Host, operation string) (err error) {
	c, source, stopped := caller{ann, os.Geteuid()}, hostapi.Target{Sandbox: "source"}, hostapi.Target{Sandbox: "stopped"}
	switch operation {
	case "boot":
		_, err = h.createBox(ctx, c, hostapi.CreateRequest{Image: "agent", MemoryMB: bootMB})
	case "create":
		_, err = h.createBox(ctx, c, hostapi.CreateRequest{Name: "new", Image: "agent", MemoryMB: 96})
	case "snapshot":
		_, err = h.takeSnapshot(ctx, c, hostapi.SnapshotRequest{Sandbox: "source", Name: "new"})
	case "branch":
		_, err = h.branchBox(ctx, c, hostapi.BranchRequest{Sandbox: "source", N: 1, Name: "new"})
	case "restore":
		_, err = h.restoreBox(ctx, c, hostapi.RestoreRequest{Sandbox: "source", Snapshot: "base"})
	case "pause":
		_, err = h.pauseBox(ctx, c, source)
	case "stop":
		_, err = h.stopBox(ctx, c, source)
	case "start":
		_, err = h.startBox(ctx, c, stopped)
	case "destroy":
		_, err = h.destroyNamed(ctx, c, source)
	}
	return err
}

// A scene is a directory of a host with the running sandbox "source", the stopped sandbox "stopped" and the snapshot
// "base".
type scene struct {
	t                   *testing.T
	dir, kernel, guests string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	sc := &scene{t: t, dir: shortDir(t)}
	testConfig(t, sc.dir)
	sc.kernel = ktest.Fetched(t, "linux-7.1-amd64")
	sc.guests, _ = guestFiles()
	t.Cleanup(func() { sc.serve(func(r *running) { clearHost(t, r) }) })
	return sc
}

// serve runs a host while f runs.
func (sc *scene) serve(f func(r *running)) {
	sc.t.Helper()
	r := runHost(sc.t, configFor(sc.dir, sc.kernel, sc.guests))
	defer r.stop()
	f(r)
}

// prepare makes what is missing of the scene, and removes everything else.
func (sc *scene) prepare(r *running) {
	r.t.Helper()
	has := map[string]hostapi.State{}
	for _, s := range must(r, hostapi.List, hostapi.None{}) {
		if s.Name == "source" && s.State == hostapi.Running || s.Name == "stopped" && s.State == hostapi.Stopped {
			has[s.Name] = s.State
			continue
		}
		must(r, hostapi.Destroy, hostapi.Target{Sandbox: s.ID})
	}
	for _, t := range r.host.allTemplates() {
		if t.recordNow().MemoryMB == bootMB {
			r.host.releaseWarm(t)
		}
	}
	r.host.removeTemplates(r.t.Context())
	base := false
	for _, s := range must(r, hostapi.Snapshots, hostapi.None{}) {
		if base = base || s.Name == "base"; s.Name != "base" {
			must(r, hostapi.RemoveSnapshot, hostapi.Target{Sandbox: s.ID})
		}
	}
	if has["source"] == "" {
		must(r, hostapi.Create, hostapi.CreateRequest{Name: "source", Image: "agent", MemoryMB: 96})
	}
	if !base {
		must(r, hostapi.TakeSnapshot, hostapi.SnapshotRequest{Sandbox: "source", Name: "base"})
	}
	if has["stopped"] == "" {
		must(r, hostapi.Create, hostapi.CreateRequest{Name: "stopped", Snapshot: "base"})
		must(r, hostapi.Stop, hostapi.Target{Sandbox: "stopped"})
	}
}

// owner performs an operation in another process, which kills itself at the step last.
func (sc *scene) owner(operation, last string) (steps []string) {
	sc.t.Helper()
	ctx, cancel := context.WithTimeout(sc.t.Context(), patience)
	defer cancel()
	program, err := os.Executable()
	if err != nil {
		sc.t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), "BAILEY_VMHOST_JOB="+strings.Join([]string{operation, sc.dir, sc.kernel, sc.guests, last}, "|"))
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if killed := cmd.ProcessState.String() == "signal: killed"; killed != (last != "") || !killed && err != nil {
		sc.t.Fatalf("%s until %q ended with %v: %s", operation, last, err, complaint.String())
	}
	for line := range strings.Lines(string(out)) {
		if step := strings.TrimSpace(line); !slices.Contains(steps, step) {
			steps = append(steps, step)
		}
	}
	return steps
}

// TestHostKilled kills the host at every step of every operation. The next host has every sandbox that was there, in a
// state that it can have, and each works; nothing else remains.
func TestHostKilled(t *testing.T) {
	t.Parallel()
	for _, operations := range [][]string{{"create", "snapshot", "branch"}, {"restore", "pause", "stop"}, {"start", "destroy", "boot"}} {
		t.Run(strings.Join(operations, " "), func(t *testing.T) {
			t.Parallel()
			killAtEachStep(t, operations)
		})
	}
}

func killAtEachStep(t *testing.T, operations []string) {
	sc := newScene(t)
	sc.serve(sc.prepare)
	for _, operation := range operations {
		steps := sc.owner(operation, "")
		if len(steps) == 0 {
			t.Fatalf("%s has no steps", operation)
		}
		if operation == "boot" { // the others are those of create
			steps = steps[:slices.Index(steps, "sandbox directory")]
		}
		sc.serve(sc.prepare)
		for _, step := range steps {
			t.Run(operation+"/"+step, func(t *testing.T) {
				sc := &scene{t, sc.dir, sc.kernel, sc.guests}
				sc.owner(operation, step)
				sc.serve(func(r *running) {
					sc.checkAll(r, operation)
					sc.prepare(r)
				})
			})
		}
	}
}

// checkAll checks what a host has after the former one was killed.
func (sc *scene) checkAll(r *running, operation string) {
	t := r.t
	t.Helper()
	var pids []int
	names := map[string]bool{}
	for _, s := range must(r, hostapi.List, hostapi.None{}) {
		names[s.Name] = true
		if s.State == hostapi.Paused {
			s = must(r, hostapi.Resume, hostapi.Target{Sandbox: s.ID})
		}
		switch {
		case s.State == hostapi.Running:
			must(r, hostapi.ListFiles, hostapi.FileRequest{Sandbox: s.ID, Path: "/"})
			pids = append(pids, r.boxOf(s.ID).machineNow().PID())
		case s.State != hostapi.Stopped:
			t.Errorf("%s is %s: %s", s.Name, s.State, s.Problem)
		}
	}
	if !names["source"] && operation != "destroy" || !names["stopped"] {
		t.Errorf("only %v remain", names)
	}
	left := holdersOf(t, sc.dir)
	slices.Sort(pids)
	if slices.Sort(left); !slices.Equal(left, pids) {
		t.Errorf("the processes %v have files below the directory, want %v", left, pids)
	}
	if n := len(machinesBelow(t, r.host)); n != len(pids) {
		t.Errorf("%d directories of machines, want %d", n, len(pids))
	}
	wantFiles(t, r.host, len(names), len(r.host.allTemplates()))
}

// holdersOf returns the other processes that have a file below dir open. Every QEMU has one.
func holdersOf(t testing.TB, dir string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, link := range links {
			if to, _ := os.Readlink(link); strings.HasPrefix(to, dir+"/") {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}
