//go:build linux

package jail

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
	"bailey/internal/ktest"
)

// mounting lists the system calls that build a cage from mounts.
var mounting = []uint32{unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
	unix.SYS_MOUNT_SETATTR, unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_FSCONFIG}

// behind installs a filter on all threads: the given calls return errno, and so does clone with a new namespace if
// namespaces is true.
func behind(t *testing.T, errno unix.Errno, namespaces bool, calls ...uint32) {
	t.Helper()
	verdict := uint32(unix.SECCOMP_RET_ERRNO) | uint32(errno)
	var c code
	c.addInstruction(opLoad, numberAt)
	for _, n := range calls {
		c.addJump(opEqual, n, 0, 1)
		c.addInstruction(opReturn, verdict)
	}
	if namespaces {
		c.addJump(opEqual, unix.SYS_CLONE3, 0, 1)
		c.addInstruction(opReturn, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS))
		c.addJump(opEqual, unix.SYS_CLONE, 0, 4)
		c.addInstruction(opLoad, argsAt)
		c.addInstruction(opMask, newNamespaces)
		c.addJump(opEqual, 0, 1, 0)
		c.addInstruction(opReturn, verdict)
	}
	c.addInstruction(opReturn, allow)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	prog := unix.SockFprog{Len: uint16(len(c)), Filter: (*unix.SockFilter)(unsafe.Pointer(&c[0]))}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); e != 0 {
		t.Fatal(e)
	}
}

// lesserHost checks that calls get the lesser cage on this host, and the reason.
func lesserHost(t *testing.T, layer, cure string) {
	t.Helper()
	ktest.Require(t, "landlock")
	j := plainJail(t, Config{})
	tool, exits, reads := probe, []string{"exit", "3"}, []string{"read", "/etc/passwd"}
	if usersProbe(j) { // this cage runs no copies; the shell always belongs to root
		tool, exits, reads = "/bin/sh", []string{"-c", "exit 3"}, []string{"-c", "read x </etc/passwd"}
	}
	wants(t, j.Probe(t.Context()), layer, cure)
	if r := ask(t, j, bailey.Job{Command: tool, Args: exits}).must(t); r.exit.Code != 3 {
		t.Errorf("%+v", r)
	}
	if r := ask(t, j, bailey.Job{Command: tool, Args: reads}).must(t); !strings.HasSuffix(strings.ToLower(r.out+r.log), "permission denied\n") {
		t.Errorf("%+v", r)
	}
	cage := planCage(t, j, bailey.Job{Command: tool})
	if cage.Kind != "landlock" || !strings.Contains(cage.Lesser, "layer "+layer) || !strings.Contains(cage.Lesser, cure) || strings.Contains(cage.Lesser, "\n") {
		t.Errorf("cage %s, because %q: want layer %s and the cure %s", cage.Kind, cage.Lesser, layer, cure)
	}
	old := plainJail(t, Config{})
	old.landlock = leastEdition - 1
	if _, err := old.chooseCage(t.Context()); bailey.KindOf(err) != bailey.Unavailable || !strings.Contains(bailey.HintOf(err), "6.2") {
		t.Errorf("an old Landlock was taken: %v", err)
	}
	layers := j.Diagnose(t.Context())
	wants(t, layers[0].Err, layer, cure)
	for i, l := range layers {
		if l.Name == layerCgroup && slices.Contains(cage.Absent, layerCgroup) {
			continue // replaced by a watcher
		}
		if (l.Err != nil) != (i == 0) || (l.Name == "full") != (i == 0) {
			t.Errorf("layer %s (%s): %v", l.Name, l.How, l.Err)
		}
	}
	for _, want := range cage.Layers {
		if want != "env-listed" && !slices.ContainsFunc(layers, func(l Layer) bool { return l.Name == want }) {
			t.Errorf("layer %s of a call's cage is not diagnosed", want)
		}
	}
}

// TestDockerHost simulates a container under Docker's default filter, which denies namespaces, mounts and keys, with
// its root's capabilities.
func TestDockerHost(t *testing.T) {
	enough(t)
	parent := true
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // the thread and its dropped capabilities end with this goroutine
		if os.Geteuid() == 0 && os.Getenv("BAILEY_KTEST_SUBPROCESS") == "" {
			const docker = 0xa80425fb // moby: oci/caps/defaults.go
			for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
				if docker>>c&1 == 0 {
					unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
				}
			}
		}
		parent = ktest.RunInSubprocess(t, probeEnv+"="+probe, "BAILEY_KERNEL=")
	})
	wg.Wait()
	if parent {
		return
	}
	behind(t, unix.EPERM, true, append(mounting, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY)...)
	lesserHost(t, "userns", "--security-opt seccomp=unconfined")
}

// TestUbuntuHost simulates a host whose AppArmor allows namespaces but no mounts in them.
func TestUbuntuHost(t *testing.T) {
	ktest.Long(t)
	enough(t)
	ktest.Require(t, "userns")
	if ktest.RunInSubprocess(t, probeEnv+"="+probe, "BAILEY_KERNEL=") {
		return
	}
	behind(t, unix.EACCES, false, mounting...)
	lesserHost(t, "mountns", "seccomp=unconfined")
}

// TestNoCageAtAll checks that without namespaces and Landlock nothing runs, and that the refusal names both remedies.
func TestNoCageAtAll(t *testing.T) {
	ktest.Require(t, "seccomp")
	if ktest.RunInSubprocess(t, probeEnv+"="+probe, "BAILEY_KERNEL=") {
		return
	}
	behind(t, unix.EPERM, true, append(mounting, unix.SYS_UNSHARE, unix.SYS_LANDLOCK_CREATE_RULESET)...)
	r := ask(t, plainJail(t, Config{}), bailey.Job{}, "exit", "0")
	if r.exit.Code != bailey.NeverRan || bailey.KindOf(r.err) != bailey.Unavailable || !strings.Contains(r.err.Error(), "neither namespaces nor a sufficient Landlock") ||
		!strings.Contains(bailey.HintOf(r.err), "seccomp=unconfined") || !strings.Contains(bailey.HintOf(r.err), "lsm=") {
		t.Errorf("%+v (%s)", r, bailey.HintOf(r.err))
	}
}

// TestLesserOnlyForGood checks that only a permanent denial selects the lesser cage. If the cause may be temporary, or
// no cage could be tried, this must be an error and not cached.
func TestLesserOnlyForGood(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{layerUnavailable("userns", os.NewSyscallError("clone", unix.EPERM)), true},
		{layerUnavailable("userns", os.NewSyscallError("clone", unix.ENOSPC)), false}, // the host allows some namespaces
		{layerUnavailable("mountns", fmt.Errorf("private: %w", unix.EACCES)), true},
		{stepError(step{inside.Step{Op: inside.Tmpfs, N: []uint64{0}, S: []string{"/proc", ""}}, "root-readonly"}, unix.EPERM), true},
		{layerUnavailable("userns", os.NewSyscallError("clone", unix.EAGAIN)), false},
		{layerUnavailable("userns", os.NewSyscallError("clone", unix.ENOMEM)), false},
		{layerUnavailable("seccomp", unix.EPERM), false},
		{layerUnavailable("pidns", os.ErrDeadlineExceeded), false},
		{unix.EPERM, false},
		{context.Canceled, false},
	} {
		if got := isHostDenial(c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
	j := newJail(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := j.chooseCage(ctx); err == nil || j.chosen {
		t.Errorf("a cage was chosen without a try: %v", err)
	}
	if lesser, err := j.chooseCage(t.Context()); err != nil || lesser != "" || !j.chosen {
		t.Errorf("on a host with namespaces: %q, %v", lesser, err)
	}
}
