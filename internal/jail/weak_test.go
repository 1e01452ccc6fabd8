//go:build linux

package jail

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/battery"
	"bailey/internal/jail/inside"
)

// A weak cage lacks something that a test removed between plan and start. No program can do this: the plan is internal
// to this package.
type weak struct {
	t     *testing.T
	stage *stage
	jail  *Jail
	run   *run
	plan  *plan
	attr  []func(*syscall.SysProcAttr)
	armed bool // a weakened PID 1 was started in advance
}

// take removes a layer or a part of one. Most layers consist of their steps and their flag of the clone.
func (w *weak) take(part string) {
	layer, rest, _ := strings.Cut(part, ": ")
	if do := w.parts()[part]; do != nil {
		do()
		return
	}
	flag, cloned := map[string]uintptr{"mountns": unix.CLONE_NEWNS, "netns": unix.CLONE_NEWNET, "ipcns": unix.CLONE_NEWIPC,
		"utsns": unix.CLONE_NEWUTS, "cgroupns": unix.CLONE_NEWCGROUP}[layer]
	w.attr = append(w.attr, func(a *syscall.SysProcAttr) { a.Cloneflags &^= flag })
	if n := w.drop(func(s step) bool { return s.layer == layer }); rest != "" || n == 0 && !cloned {
		w.t.Fatalf("there is no %q to take away", part)
	}
}

func (w *weak) drop(which func(step) bool) (n int) {
	n = len(w.plan.steps)
	w.plan.steps = slices.DeleteFunc(w.plan.steps, which)
	return n - len(w.plan.steps)
}

// change edits the steps of a layer, of which there must be at least one.
func (w *weak) change(layer string, op uint8, edit func(*step)) {
	n := 0
	for i := range w.plan.steps {
		if s := &w.plan.steps[i]; s.layer == layer && s.Op == op {
			s.N, s.S = slices.Clone(s.N), slices.Clone(s.S)
			edit(s)
			n++
		}
	}
	if n == 0 {
		w.t.Fatalf("layer %s has no such step", layer)
	}
}

// before inserts a step before the first match.
func (w *weak) before(which func(step) bool, s step) {
	i := slices.IndexFunc(w.plan.steps, which)
	if i < 0 {
		w.t.Fatal("there is no such step")
	}
	w.plan.steps = slices.Insert(w.plan.steps, i, s)
}

// parts returns the layers that consist of more, or less, than the steps of their name.
func (w *weak) parts() map[string]func() {
	some := func(which func(step) bool) func() {
		return func() {
			if w.drop(which) == 0 {
				w.t.Fatal("there is nothing to take away")
			}
		}
	}
	op := func(layer string, op uint8) func() {
		return some(func(s step) bool { return s.layer == layer && s.Op == op })
	}
	attributes := func(layer string, bits uint64) func() {
		return func() { w.change(layer, inside.Bind, func(s *step) { s.N[2] &^= bits }) }
	}
	return map[string]func(){
		"userns": func() {
			w.attr = append(w.attr, func(a *syscall.SysProcAttr) {
				a.Cloneflags &^= unix.CLONE_NEWUSER
				a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP} // the container has no more
				a.UidMappings, a.GidMappings = nil, nil
			})
		},
		"pidns": w.sharedPids,
		// or the watcher, if that limits the cage
		"cgroup":                func() { w.plan.bounds.memory, w.plan.bounds.tasks = 1<<40, 1<<20 },
		"session":               w.noSession,
		"init-guarded: memory":  op("init-guarded", inside.Undump),
		"init-guarded: signals": op("init-guarded", inside.Signals),
		"root-readonly: pivot":  op("root-readonly", inside.Pivot),
		"root-readonly: seal":   op("root-readonly", inside.Seal),
		"tmp-private: noexec":   func() { w.change("tmp-private", inside.Fresh, func(s *step) { s.N[0] &^= unix.MS_NOEXEC }) },
		"tmp-private: size": func() {
			w.change("tmp-private", inside.Fresh, func(s *step) { s.S[1] = "mode=1777,size=1g,nr_inodes=100000" })
		},
		"proc-private: covers":    op("proc-private", inside.Bind),
		"proc-private: read-only": func() { w.change("proc-private", inside.Proc, func(s *step) { s.N[0] &^= unix.MS_RDONLY }) },
		"binds-noexec: noexec":    attributes("binds-noexec", unix.MOUNT_ATTR_NOEXEC),
		"binds-noexec: read-only": attributes("binds-noexec", readOnly),
		"masks: pins":             some(func(s step) bool { return s.layer == "masks" && s.S[0] == s.S[1] }),
		"dev-private": func() { // replaced by the host's own
			w.before(func(s step) bool { return s.Op == inside.Bind }, step{inside.Step{Op: inside.Bind, N: []uint64{0, 0, 0}, S: []string{"/dev", "dev"}}, ""})
			op("dev-private", inside.Bind)()
		},
		"fds-closed": func() {
			op("fds-closed", inside.Descriptors)()
			fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				w.t.Fatal(err)
			}
			w.t.Cleanup(func() { unix.Close(fd) })
		},
		"env-listed": func() { w.run.env = append(w.run.env, os.Environ()...) },
	}
}

// noSession leaves PID 1 in the gateway's session. The tool starts its own session in package inside; a filter makes
// that seem to succeed.
func (w *weak) noSession() {
	w.attr = append(w.attr, func(a *syscall.SysProcAttr) { a.Setsid = false })
	pretend := []uint64{
		opLoad | numberAt<<32,
		opEqual | 1<<24 | uint64(unix.SYS_SETSID)<<32,
		opReturn | uint64(errno)<<32,
		opReturn | uint64(allow)<<32,
	}
	w.before(func(s step) bool { return s.Op == inside.Exec }, step{inside.Step{Op: inside.Filter, N: pretend}, "session"})
}

// sharedPids starts PID 1 in a PID namespace that this thread has created, and then the victim in the same one, so that
// the cage shares its pids. Without any namespace, only the host's first process would be PID 1, and the trap in
// package inside would not run.
func (w *weak) sharedPids() {
	if err := unix.Unshare(unix.CLONE_NEWPID); err != nil {
		w.t.Fatal(err)
	}
	w.jail.weaken = func(a *syscall.SysProcAttr) { a.Cloneflags &^= unix.CLONE_NEWPID }
	w.jail.cages().stock.preforkChild(false)
	w.jail.weaken, w.armed = nil, true
	w.stage.haunt(w.t, DefaultHostUID)
	w.stage.Victim = innermost(w.t, w.stage.Victim)
	w.stage.Pids = nil
}

// innermost returns the pid of a process in its own namespace (proc_pid_status(5)).
func innermost(t *testing.T, pid int) (inner int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(lastWord(parseFields(string(text))["NSpid:"]), &inner); err != nil {
		t.Fatal(err)
	}
	return inner
}

// start runs the changed plan. The attacker gets the stage's present scene.
func (w *weak) start() (out string, exit bailey.Exit, err error) {
	scene, err := json.Marshal(w.stage.Scene)
	if err != nil {
		w.t.Fatal(err)
	}
	w.run.env = append(cageRules.without(w.run.env, battery.Env), battery.Env+"="+string(scene))
	if !w.armed {
		w.jail.weaken = func(a *syscall.SysProcAttr) {
			for _, change := range w.attr {
				change(a)
			}
		}
	}
	var b, log bytes.Buffer
	exit, err = w.run.Start(w.t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &b, Stderr: &log})
	if log.Len() > 0 {
		w.t.Error(log.String())
	}
	return b.String(), exit, err
}
