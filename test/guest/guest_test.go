//go:build linux

package guest

import (
	"testing"
	"time"
)

// Features that current kernels offer to every user and to root, and programs that the tests find in a guest with this
// machine's programs.
const (
	everybody = "userns,netns,seccomp"
	rootOnly  = everybody + ",root,cgroup,keyring,idmap"
	programs  = ",dynamic-true,libc,true,cat"
)

// walls matches tests that attack a cage from inside or report its missing layers. bounds also matches tests of the
// resources that contain it. All tests of the jail would take about ten minutes in a guest and test no further
// isolation.
const (
	walls  = "Cage|Walls|Probe|Diagnose|Landlock|Calls|Filter|Init|Proc|Layer"
	bounds = walls + "|Group|Hold|Swept|Watch|Locate"
)

// TestCgroup2 tests the usual case of current distributions: cgroup v2 and Landlock.
func TestCgroup2(t *testing.T) {
	boot(t, machine{kernel: "6.12-amd64"},
		jail("-test.run="+bounds).having(rootOnly+programs+",landlock").called("root"),
		jail("-test.run="+bounds).as(1000).having(everybody+programs+",landlock,cgroup").delegated().called("ordinary"),
		program("cmd/bailey", "doctor", "--json").as(1000).saying(`"ok":true`).called("doctor"),
		command("cat", "/proc/self/cgroup").as(1000).delegated().saying("0::/guest-3").called("delegated"))
}

// TestCoreHandler changes a setting of the whole machine: the program that a crash starts.
func TestCoreHandler(t *testing.T) {
	boot(t, machine{kernel: "6.12-amd64"},
		jail("-test.run=^TestAttackCoreHandler$").having("userns,netns,root,own-machine").with("BAILEY_OWN_MACHINE=1").saying("--- PASS: TestAttackCoreHandler"))
}

// TestOldest tests the oldest maintained kernel that has Landlock, with control groups of version 1.
func TestOldest(t *testing.T) {
	boot(t, machine{kernel: "6.1-amd64", cgroup: "v1", disk: true},
		jail("-test.run="+bounds).having(rootOnly+programs+",landlock").called("root"))
}

// TestWithoutLandlock tests a kernel whose command line disables Landlock, as some distributions do.
func TestWithoutLandlock(t *testing.T) {
	boot(t, machine{kernel: "6.12-amd64", line: "lsm="},
		tests("internal/ktest", "-test.run=^TestFeatures$").saying("landlock: operation not supported", "userns: <nil>"),
		jail("-test.run="+walls).as(1000).having(everybody+programs).called("ordinary"),
		program("cmd/bailey", "doctor", "--json").as(1000).saying("layer landlock is absent").ending("exit status 1").called("doctor"))
}

// TestWithoutUserNamespaces checks that the cage is refused for the right reason.
func TestWithoutUserNamespaces(t *testing.T) {
	boot(t, machine{kernel: "7.1-amd64"},
		tests("internal/ktest", "-test.run=^TestFeatures$").saying("landlock: <nil>", "userns: fork/exec /proc/self/exe: invalid argument"),
		program("cmd/bailey", "doctor", "--json").as(1000).saying("layer userns could not be set up", "CONFIG_USER_NS").
			ending("exit status 1").called("doctor"))
}

// TestBusybox checks that the programs that the jail itself runs in a cage work if busybox provides them, as on Alpine.
func TestBusybox(t *testing.T) {
	boot(t, machine{kernel: "6.1-amd64", busybox: true},
		jail("-test.run=^(TestDiagnose|TestProbe)").as(1000).having(everybody+",landlock,cat,readlink"))
}

// TestARM64 runs code that is otherwise only compiled: the system calls of PID 1, the filter, the closure, the assembly
// of a helper's children, also under load, and calls that a helper serves.
func TestARM64(t *testing.T) {
	boot(t, machine{kernel: "6.12-arm64"},
		tests("internal/jail/inside", "-test.run=Child|Spawn|Table|Arena|Mail|Armed|Warm").having("sh,cat").
			saying("--- PASS: TestChildBecomes", "--- PASS: TestChildTorture").called("inside"),
		jail("-test.run="+walls+"|GoldenTables").having(rootOnly+programs+",landlock").
			saying("--- PASS: TestWarmCage", "--- PASS: TestGoldenTables").called("root"),
		jail("-test.run="+walls).as(1000).having(everybody+programs+",landlock").called("ordinary"))
}

// TestTasksEnd checks that a task that fails, hangs or leaves a process behind is reported as such, and that no process
// of it remains when the next task starts.
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
