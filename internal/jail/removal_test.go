//go:build linux

package jail

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/jail/battery"
	"bailey/internal/ktest"
)

// A removal is a cage without a part of its plan, with the expected results of the battery.
type removal struct {
	without string // removed layers or parts: "layer" or "layer: part", joined by " + "
	opens   string // probes that report OPEN, separated by blanks
	holds   string // probes that another layer still stops
	proc    bool
}

// removals show the purpose of each layer. If a second layer stops the same attack, both are also removed together.
var removals = []removal{
	{without: "userns + seccomp", opens: "keyring/user"},
	{without: "mountns"},
	{without: "pidns", opens: "process/session-of process/pidfd", holds: "process/signal"},
	{without: "pidns + landlock", opens: "process/signal-0 process/signal"},
	{without: "netns", holds: "network/loopback network/loopback-datagram network/abstract-socket"},
	{without: "netns + seccomp", opens: "network/loopback-datagram", holds: "network/loopback network/abstract-socket"},
	{without: "netns + seccomp + landlock", opens: "network/loopback network/abstract-socket"},
	{without: "ipcns", opens: "ipc/shared-memory ipc/semaphore ipc/message-queue ipc/list-segments"},
	{without: "utsns", opens: "data/host-name"},
	{without: "cgroupns", opens: "data/cgroup-path", proc: true},
	{without: "session", opens: "process/session"},
	{without: "init-guarded: memory", opens: "data/read-proc-1-environ data/read-proc-1-mem", holds: "process/init-trace", proc: true},
	{without: "init-guarded: memory + seccomp", opens: "process/init-memory-read process/init-memory-write process/init-descriptor"},
	{without: "init-guarded: signals", opens: "process/init-signals"},
	{without: "root-readonly: pivot", opens: "data/secret data/read-sys-kernel"},
	{without: "root-readonly: seal", opens: "mount/attributes", holds: "data/root-write"},
	{without: "root-readonly: seal + landlock", opens: "data/root-write data/dev-write"},
	{without: "tmp-private: noexec", opens: "exec/map-tmp exec/protect-tmp mount/attributes", holds: "exec/copy-in-tmp exec/unnamed-file"},
	{without: "tmp-private: noexec + landlock", opens: "exec/copy-in-tmp exec/copy-in-home exec/loader-tmp exec/library-path"},
	{without: "tmp-private: size", opens: "resource/tmp resource/home resource/inodes"},
	{without: "dev-private", opens: "device/list device/open-ptmx"},
	{without: "proc-private: covers", opens: "data/read-proc-cmdline data/read-proc-keys", proc: true},
	{without: "proc-private: read-only", opens: "mount/attributes", holds: "kernel/proc-files", proc: true},
	{without: "proc-private: read-only + landlock", opens: "kernel/proc-files", holds: "kernel/core-pattern kernel/modprobe", proc: true},
	{without: "binds-noexec: noexec", opens: "exec/map-place exec/map-then-protect exec/preload exec/loader-preload", holds: "exec/place-readonly exec/script"},
	{without: "binds-noexec: noexec + landlock", opens: "exec/place-readonly exec/place-writable exec/script exec/descriptor"},
	{without: "binds-noexec: read-only", opens: "data/readonly-chmod data/readonly-times data/readonly-attribute", holds: "data/readonly-write data/readonly-unlink"},
	{without: "binds-noexec: read-only + landlock", opens: "data/readonly-write data/readonly-create data/readonly-unlink"},
	{without: "masks", opens: "data/masked data/masked-link data/masked-upwards data/masked-chdir data/masked-write data/masked-rename"},
	{without: "masks: pins", opens: "data/masked-holder-rename"},
	{without: "keyring", holds: "keyring/session"},
	{without: "keyring + seccomp", opens: "keyring/session"},
	{without: "rlimits", opens: "resource/tasks resource/core resource/raise-limits resource/locked-memory resource/signals"},
	{without: "cgroup", opens: "resource/memory-of-many resource/shared-memory resource/segments"},
	{without: "fds-closed", opens: "data/descriptors", holds: "data/inherited-directory"},
	{without: "fds-closed + landlock", opens: "data/inherited-directory"},
	{without: "caps-none", opens: "privilege/none", holds: "mount/fsopen mount/unmount-mask"},
	{without: "caps-none + seccomp", opens: "mount/fsopen", holds: "mount/unmount-mask"},
	{without: "caps-none + seccomp + landlock", opens: "mount/unmount-mask"},
	{without: "no-new-privs"},
	{without: "no-new-privs + landlock + seccomp", opens: "privilege/new-privileges"},
	{without: "landlock", opens: "data/readonly-fifo exec/library"},
	{without: "seccomp", opens: "data/set-id network/socket-in-readonly-place network/datagrams-in-place network/pair-redirected network/family-netlink-route " +
		"namespace/unshare-user kernel/perf kernel/userfaultfd kernel/keyctl kernel/personality kernel/asynchronous-io kernel/splice-memory kernel/lease resource/core-lowered resource/pipe-size resource/huge-pages resource/socket-filter resource/watches exec/memfd"},
	{without: "env-listed", opens: "data/environment"},
}

// TestRemoval removes layers and checks that the battery notices. It runs in a disposable container with its own user,
// mounts, processes, names, shared memory and network.
func TestRemoval(t *testing.T) {
	ktest.Long(t)
	if container(t) {
		return
	}
	for _, r := range removals {
		t.Run(r.without, func(t *testing.T) { r.try(t) })
	}
}

func (r removal) try(t *testing.T) {
	if groups, _ := os.ReadFile("/proc/self/cgroup"); r.without == "cgroupns" && strings.Count(string(groups), ":/\n") == strings.Count(string(groups), "\n") {
		ktest.Missing(t, "cgroup-path", errors.New("every group here is a root"))
	}
	runtime.LockOSThread()
	j, s := newJail(t, Config{}), staged(t)
	j.chosen = true // no trial, which would start a complete PID 1 in advance
	s.Canary = os.Getenv(containerEnv)
	j.mask, s.Proc = s.masks, r.proc
	s.Only = append(strings.Fields(r.opens), strings.Fields(r.holds)...)
	parts := strings.Split(r.without, " + ")
	for _, part := range parts {
		layer, _, _ := strings.Cut(part, ":")
		s.Weak = append(s.Weak, layer)
	}
	job := s.job(t, "all")
	job.Timeout = deadline
	job.Dir = s.RO // a cage without its own root has no home
	planned, err := j.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	w := weak{t: t, stage: s, jail: j, run: planned.(*run), plan: planned.(*run).plan}
	for _, part := range parts {
		w.take(part)
	}
	out, exit, err := w.start()
	code := exit.Code
	if len(s.Only) == 0 { // no probes: without the layer there must be no cage
		if code != bailey.NeverRan || bailey.KindOf(err) != bailey.Unavailable {
			t.Errorf("a cage was built without %s: %d, %v", r.without, code, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err, bailey.HintOf(err))
	}
	found := results(t, out)
	for _, name := range s.Only {
		v, answered := found[name]
		open := v.Open != "" || !answered && code == 137 // a cage that ended also counts as open
		if want := slices.Contains(strings.Fields(r.opens), name); open != want {
			t.Errorf("%s: %+v, want open %t (exit code %d)", name, v, want, code)
		}
	}
}

// deadline ends a weak cage if a probe hangs.
const deadline = 30 * time.Second

// TestRemovalsAreDocumented checks that docs/threat-model.md contains this table.
func TestRemovalsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range removals {
		if row := r.row(); !strings.Contains(string(text), row) {
			t.Errorf("docs/threat-model.md lacks the row %s", row)
		}
	}
}

func (r removal) row() string {
	list := func(names string) string {
		if names == "" {
			return ""
		}
		return "`" + strings.Join(strings.Fields(names), "` `") + "`"
	}
	if r.opens+r.holds == "" {
		return fmt.Sprintf("| %s | no cage can be built | |", r.without)
	}
	return fmt.Sprintf("| %s | %s | %s |", r.without, list(r.opens), list(r.holds))
}

// TestEveryLayerIsRemoved checks that every layer that a receipt can name has a row.
func TestEveryLayerIsRemoved(t *testing.T) {
	names := samplePlan(false).layerNames()
	for _, name := range names {
		if !slices.ContainsFunc(removals, func(r removal) bool {
			return slices.ContainsFunc(strings.Split(r.without, " + "), func(part string) bool { layer, _, _ := strings.Cut(part, ":"); return layer == name })
		}) {
			t.Errorf("what layer %s is for is shown by nothing", name)
		}
	}
	known := map[string]bool{}
	for _, p := range battery.Probes() {
		known[p.Name] = true
	}
	for _, r := range removals {
		for _, name := range strings.Fields(r.opens + " " + r.holds) {
			if !known[name] {
				t.Errorf("without %s: %s is no probe", r.without, name)
			}
		}
	}
}
