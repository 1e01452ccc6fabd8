//go:build linux

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// A scene is a template, and directories for machines that come from it.
type scene struct {
	host          *Host
	dir, template string
	kernel        string
	source        string // of the current operation, if it is a clone
}

func newScene(t *testing.T) *scene {
	t.Helper()
	ktest.Long(t)
	h := testHost(t, Config{})
	s := testSpec(t)
	s.Layers = []Layer{{testImage(t), "raw", ""}}
	m := startGuest(t, h, s)
	sc := &scene{host: h, dir: t.TempDir(), kernel: s.Kernel}
	sc.template, sc.source = filepath.Join(sc.dir, "template"), filepath.Join(sc.dir, "source")
	if err := m.Snapshot(t.Context(), sc.template); err != nil {
		t.Fatal(err)
	}
	return sc
}

// operations lists what can be interrupted, with the machine or template that it needs.
func (sc *scene) operations() map[string]string {
	return map[string]string{"start": sc.kernel, "clone": sc.template, "snapshot": sc.source, "destroy": sc.source}
}

// prepare makes a clone that no process owns, unless it exists or the operation does not need it.
func (sc *scene) prepare(t *testing.T, operation string) {
	t.Helper()
	if _, err := os.Lstat(sc.source); err == nil || operation == "start" || operation == "clone" {
		return
	}
	if err := perform(t.Context(), sc.host, "clone", sc.source, sc.template); err != nil {
		t.Fatal(err)
	}
}

// owner runs an operation in another process, which kills itself at the step last.
func owner(t *testing.T, operation, dir, source, last string) (steps []string) {
	t.Helper()
	out := runOwner(t, nil, operation, dir, source, last)
	return strings.Fields(strings.ReplaceAll(out, " ", "_"))
}

// runOwner runs a job of ownMachine in another process. It must be killed if the job has a fourth part that is not empty.
func runOwner(t *testing.T, attr *unix.SysProcAttr, job ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.SysProcAttr = attr
	cmd.Env = append(os.Environ(), "BAILEY_VM_OWNER="+strings.Join(job, "|"))
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	killed := cmd.ProcessState.String() == "signal: killed"
	if dies := len(job) > 3 && job[3] != "" && job[0] != "full"; killed != dies || !killed && err != nil {
		t.Fatalf("the owner ended with %v: %s", err, complaint.String())
	}
	return string(out)
}

// TestOwnerKilled kills the owner at every step. Afterwards, Remove leaves no process, file or lock, and a machine whose
// snapshot was interrupted still works.
func TestOwnerKilled(t *testing.T) {
	sc := newScene(t)
	for operation, source := range sc.operations() {
		dir := filepath.Join(sc.dir, operation)
		sc.prepare(t, operation)
		steps := owner(t, operation, dir, source, "")
		sc.clean(t, dir, sc.source)
		if len(steps) < 8 {
			t.Fatalf("%s has the steps %v", operation, steps)
		}
		for _, step := range distinct(operation, steps) {
			t.Run(operation+"/"+step, func(t *testing.T) {
				sc.prepare(t, operation)
				owner(t, operation, dir, source, strings.ReplaceAll(step, "_", " "))
				if operation != "snapshot" {
					sc.clean(t, dir, sc.source)
					return
				}
				sc.stillWorks(t, source)
				sc.clean(t, dir)
			})
		}
		sc.clean(t, sc.source)
	}
}

// distinct returns the steps of an operation without repetitions. A snapshot of a clone starts a machine by the steps of
// clone, which are interrupted there; here only two of them are.
func distinct(operation string, steps []string) []string {
	steps = slices.Clone(steps)
	slices.Sort(steps)
	return slices.DeleteFunc(slices.Compact(steps), func(step string) bool {
		return operation == "snapshot" && slices.Contains([]string{"directory", "record", "alive", "monitor_socket", "guest_socket",
			"memory", "state", "overlay", "groups", "identify", "limits", "monitor"}, step)
	})
}

// stillWorks opens a machine, resumes it and asks its guest.
func (sc *scene) stillWorks(t *testing.T, dir string) {
	t.Helper()
	m, err := sc.host.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Release()
	if err := m.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if text, err := askGuest(ctx, m, "ping x"); err != nil || !strings.HasPrefix(text, "pong x ") {
		t.Fatalf("%q, %v", text, err)
	}
}

// clean removes machines and templates, and looks for what remains beside the template and the source.
func (sc *scene) clean(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if err := sc.host.Remove(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(sc.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := filepath.Join(sc.dir, e.Name()); name != sc.template && name != sc.source {
			t.Errorf("%s remains", name)
		}
	}
	left := holders(t, sc.dir)
	if r, err := readRecord(sc.source); err == nil {
		left = slices.DeleteFunc(left, func(pid int) bool { return pid == r.PID })
	}
	if len(left) > 0 {
		t.Errorf("processes remain: %v", left)
	}
}

// holders returns the processes that have a file below dir open, which may be deleted. QEMU has the file alive.
func holders(t *testing.T, dir string) (pids []int) {
	t.Helper()
	err := eachProcess(func(pid, _ int) {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, link := range links {
			if to, _ := os.Readlink(link); strings.HasPrefix(to, dir+"/") && pid != os.Getpid() && !isZombie(pid) {
				pids = append(pids, pid)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Compact(pids)
}

// TestQEMUKilled kills QEMU at every step. The operation must fail or succeed without it, say how QEMU ended, and leave
// nothing.
func TestQEMUKilled(t *testing.T) {
	sc := newScene(t)
	for operation, source := range sc.operations() {
		dir := filepath.Join(sc.dir, operation)
		sc.prepare(t, operation)
		steps := owner(t, operation, dir, source, "")
		sc.clean(t, dir, sc.source)
		if from := slices.Index(steps, "process"); from >= 0 && operation != "snapshot" {
			steps = steps[from+1:] // before that, no process exists
		}
		for _, step := range distinct(operation, steps) {
			if strings.HasPrefix(step, "remove") {
				continue // QEMU has ended
			}
			t.Run(operation+"/"+step, func(t *testing.T) {
				sc.prepare(t, operation)
				killed := false
				h := testHost(t, Config{Ready: answers, Renew: answers, step: func(name string) {
					if strings.ReplaceAll(name, " ", "_") == step && !killed {
						killed = true
						for _, pid := range holders(t, sc.dir) {
							unix.Kill(pid, unix.SIGKILL)
						}
					}
				}})
				err := perform(t.Context(), h, operation, dir, source)
				if !killed {
					t.Error("the step did not occur")
				}
				if operation == "start" || operation == "clone" {
					if err == nil || !strings.Contains(err.Error(), "killed") {
						t.Errorf("%v, want an error that says that QEMU was killed", err)
					}
					if _, err := os.Lstat(dir); err == nil {
						t.Error("a machine that failed remains")
					}
				}
				sc.clean(t, dir, sc.source)
			})
		}
	}
}

// answers waits until QEMU has answered once more.
func answers(ctx context.Context, m *Machine) error {
	_, err := m.queryState(ctx)
	return err
}

// TestForeignProcess gives the process id of a machine that has ended to another process. It must survive.
func TestForeignProcess(t *testing.T) {
	other := exec.Command("sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { other.Process.Kill(); other.Wait() }()
	h := testHost(t, Config{})
	start, err := startTime(other.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]record{
		"another start":    {Name: "bailey-A", PID: other.Process.Pid, Start: start + 1, Boot: bootID(), UID: os.Getuid()},
		"another program":  {Name: "bailey-A", PID: other.Process.Pid, Start: start, Boot: bootID(), UID: os.Getuid()},
		"before a restart": {Name: "600", PID: other.Process.Pid, Start: start, Boot: "x", UID: os.Getuid() + 1},
		"no name":          {PID: other.Process.Pid, Start: start, Boot: bootID(), UID: os.Getuid()},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "machine")
			m := &Machine{host: h, dir: dir, record: r}
			if err := errors.Join(os.Mkdir(dir, 0o700), m.writeRecord()); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Open(t.Context(), dir); bailey.KindOf(err) != bailey.NotFound {
				t.Errorf("Open: %v, want NotFound", err)
			}
			if err := h.Remove(t.Context(), dir); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(dir); err == nil {
				t.Error("the directory remains")
			}
			if isZombie(other.Process.Pid) {
				t.Fatal("another process was killed")
			}
		})
	}
}

// TestUnrecorded removes a machine whose process is known by the lock of alive only.
func TestUnrecorded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "machine")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	alive, err := lockAlive(filepath.Join(dir, aliveFile))
	if err != nil {
		t.Fatal(err)
	}
	h := testHost(t, Config{})
	h.QEMUTime = 20 * time.Millisecond
	if err := h.Remove(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "does not end") {
		t.Errorf("%v, want an error because something holds the lock", err)
	}
	alive.Close()
	if err := h.Remove(t.Context(), dir); err != nil {
		t.Error(err)
	}
}
