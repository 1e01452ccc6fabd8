package inside

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

const armedEnv = "BAILEY_ARMED"

// TestArmed checks that a helper begins a call only for the byte Arm with exactly two descriptors, the leash and the
// mailbox. Otherwise it must end.
func TestArmed(t *testing.T) {
	if os.Getenv(armedEnv) != "" {
		leash, mail, ok := waitForCall()
		fmt.Printf("armed %v apart %v\n", ok, leash != mail && same(leash, mail))
		return
	}
	checkArmed(t, "", 0)
	for _, body := range []string{string(rune(Arm)), "B", "\x00", "AB"} {
		for _, fds := range []int{0, 1, 2, 3, MaxDescriptors} {
			checkArmed(t, body, fds)
		}
	}
}

// same tells whether two descriptors refer to the same file.
func same(a, b int) bool {
	var s, u syscall.Stat_t
	return syscall.Fstat(a, &s) == nil && syscall.Fstat(b, &u) == nil && s.Dev == u.Dev && s.Ino == u.Ino
}

// checkArmed sends at most one message to a process that has the other end of Socket, as a helper has.
func checkArmed(t *testing.T, body string, fds int) {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "cage")
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	passed := make([]int, fds)
	for i := range passed {
		passed[i] = int(null.Fd())
	}
	if body != "" {
		if err := syscall.Sendmsg(pair[0], []byte(body), syscall.UnixRights(passed...), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	syscall.Close(pair[0])
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestArmed$")
	// the first extra file becomes descriptor 3
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), armedEnv+"=1"), []*os.File{theirs}
	out, err := cmd.CombinedOutput()
	theirs.Close()
	want := strings.HasPrefix(body, string(rune(Arm))) && fds == 2
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("armed %v apart %v\n", want, want)) {
		t.Errorf("%q with %d descriptors: %v, %s; want %v", body, fds, err, out, want)
	}
}
