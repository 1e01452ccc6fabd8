package inside

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

const heldEnv = "BAILEY_HELD"

// TestHoldData checks that a tool gets its memory limit or keeps a lower one that it has set. If the limit can be
// neither set nor read, this must be an error.
func TestHoldData(t *testing.T) {
	if os.Getenv(heldEnv) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^TestHoldData$")
		cmd.Env = append(os.Environ(), heldEnv+"=1")
		if os.Geteuid() == 0 { // root may raise any limit
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 31337, Gid: 31338}}
		}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestHoldData") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	const resource, gib = 2, 1 << 30
	bound := func() (has [2]uint64) {
		call6(syscall.SYS_PRLIMIT64, 0, resource, 0, uintptr(unsafe.Pointer(&has)), 0, 0)
		return has
	}
	for _, c := range []struct{ n, want uint64 }{{4 * gib, 4 * gib}, {8 * gib, 4 * gib}, {2 * gib, 2 * gib}, {4 * gib, 2 * gib}} {
		if e := holdData(os.Getpid(), c.n); e != 0 || bound() != [2]uint64{c.want, c.want} {
			t.Errorf("bound by %d: %v, %v", c.n, e, bound())
		}
	}
	if e := holdData(1, gib); e != syscall.EPERM {
		t.Errorf("another's process: %v", e)
	}
}
