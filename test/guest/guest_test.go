//go:build linux

package guest

import (
	"testing"
	"time"
)

// What kernels of today offer everybody and root, and what the tests find in a guest with this machine's programs.
const (
	everybody = "userns,netns,seccomp"
	rootOnly  = everybody + ",root,cgroup,keyring,idmap"
	programs  = ",dynamic-true,libc,true,cat"
)

// walls are tests that try a cage from inside, or tell what it lacks; bounds those of what holds it as a whole.
// All of a jail's tests take a guest some ten minutes, for no wall more.
const (
	walls  = "Cage|Walls|Probe|Diagnose|Landlock|Calls|Filter|Init|Proc|Layer"
	bounds = walls + "|Group|Hold|Swept|Watch|Locate"
)

// TestCgroup2 is what distributions install today: cgroup v2 and Landlock.
func TestCgroup2(t *testing.T) {
	boot(t, machine{kernel: "6.12-amd64"},
		jail("-test.run="+bounds).having(rootOnly+programs+",landlock").called("root"),
		jail("-test.run="+bounds).as(1000).having(everybody+programs+",landlock,cgroup").delegated().called("ordinary"),
		program("cmd/bailey", "doctor", "--json").as(1000).saying(`"ok":true`).called("doctor"),
		command("cat", "/proc/self/cgroup").as(1000).delegated().saying("0::/guest-3").called("delegated"))
}

// TestCoreHandler changes what holds for a whole machine: what a crash starts.
func TestCoreHandler(t *testing.T) {
	boot(t, machine{kernel: "6.12-amd64"},
		jail("-test.run=^TestAttackCoreHandler$").having("userns,netns,root,own-machine").with("BAILEY_OWN_MACHINE=1").saying("--- PASS: TestAttackCoreHandler"))
}

// TestOldest is the oldest kernel that is still maintained and has Landlock, with control groups of version 1.
func TestOldest(t *testing.T) {
	boot(t, machine{kernel: "6.1-amd64", cgroup: "v1", disk: true},
		jail("-test.run="+bounds).having(rootOnly+programs+",landlock").called("root"))
}

// TestWithoutLandlock: the kernel's command line leaves it out, as some distributions do.
func TestWithoutLandlock(t *testing.T) {
	boot(t, machine{kernel: "6.12-amd64", line: "lsm="},
		tests("internal/ktest", "-test.run=^TestFeatures$").saying("landlock: operation not supported", "userns: <nil>"),
		jail("-test.run="+walls).as(1000).having(everybody+programs).called("ordinary"),
		program("cmd/bailey", "doctor", "--json").as(1000).saying("layer landlock is absent").ending("exit status 1").called("doctor"))
}

// TestWithoutUserNamespaces: the cage is refused for the right reason.
func TestWithoutUserNamespaces(t *testing.T) {
	boot(t, machine{kernel: "7.1-amd64"},
		tests("internal/ktest", "-test.run=^TestFeatures$").saying("landlock: <nil>", "userns: fork/exec /proc/self/exe: invalid argument"),
		program("cmd/bailey", "doctor", "--json").as(1000).saying("layer userns could not be set up", "CONFIG_USER_NS").
			ending("exit status 1").called("doctor"))
}

// TestBusybox: what the jail itself runs in a cage works where programs are as on Alpine.
func TestBusybox(t *testing.T) {
	boot(t, machine{kernel: "6.1-amd64", busybox: true},
		jail("-test.run=^(TestDiagnose|TestProbe)").as(1000).having(everybody+",landlock,cat,readlink"))
}

// TestARM64 runs what is only compiled elsewhere: PID 1's system calls, the filter, the closure, the assembly of a
// helper's children, under load too, and calls that a helper serves.
func TestARM64(t *testing.T) {
	boot(t, machine{kernel: "6.12-arm64"},
		tests("internal/jail/inside", "-test.run=Child|Spawn|Table|Arena|Mail|Armed|Warm").having("sh,cat").
			saying("--- PASS: TestChildBecomes", "--- PASS: TestChildTorture").called("inside"),
		jail("-test.run="+walls+"|GoldenTables").having(rootOnly+programs+",landlock").
			saying("--- PASS: TestWarmCage", "--- PASS: TestGoldenTables").called("root"),
		jail("-test.run="+walls).as(1000).having(everybody+programs+",landlock").called("ordinary"))
}

// TestTasksEnd: a task that fails, hangs or leaves a process behind is told as what it is, and the next one
// begins on a quiet machine.
func TestTasksEnd(t *testing.T) {
	hangs := command("sh", "-c", "echo begun; while :; do :; done").saying("begun\n").called("hangs")
	hangs.Limit = 3 * time.Second
	boot(t, machine{kernel: "7.1-amd64"},
		command("sh", "-c", "exit 3").ending("exit status 3").called("fails"),
		hangs.ending("signal: killed: signal: killed, context deadline exceeded"),
		command("sh", "-c", "sh -c 'echo $$ >/tmp/beat; while :; do :; done' >/dev/null 2>&1 & until [ -s /tmp/beat ]; do :; done").called("leaves"),
		command("sh", "-c", "read pid </tmp/beat; kill -0 $pid 2>/dev/null || echo gone").saying("gone\n").called("quiet"),
		command("no-such-program").ending("<nil>: exec: \"no-such-program\": executable file not found in $PATH, <nil>"))
}
