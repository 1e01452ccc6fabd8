package battery

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cageMarks are properties that no ordinary process has all together. Each names the layers that produce it, so that a cage
// that lacks one of these on purpose is still recognized as a cage.
var cageMarks = []struct {
	what   string
	layers []string
	seen   func() bool
}{
	{"no new privileges", []string{"no-new-privs"}, func() bool { return callPrctl(unix.PR_GET_NO_NEW_PRIVS, 0) == 1 }},
	{"a filter on system calls", []string{"seccomp", "sockets-none"}, func() bool { return callPrctl(unix.PR_GET_SECCOMP, 0) == unix.SECCOMP_MODE_FILTER }},
	{"no capability", []string{"caps-none"}, func() bool { return capabilitySets() == [6]uint32{} }},
	{"an empty bounding set", []string{"caps-none"}, func() bool { return callPrctl(unix.PR_CAPBSET_READ, unix.CAP_SYS_ADMIN) == 0 }},
	{"the cage's host name", []string{"utsns"}, func() bool { name, _ := os.Hostname(); return name == "bailey" }},
	{"nothing of the kernel's tree", []string{"root-readonly"}, func() bool { _, err := os.ReadDir("/sys"); return err != nil }},
}

// enough is how many of the six marks must be present: a process of an ordinary user in a strict container has three. A
// cage of kind landlock has four if it could not empty the bounding set.
const enough = 4

// checkInCage returns why this is not a cage. The token must be present, and the file of the host that contains it must be
// out of reach.
func (s *Scene) checkInCage() error {
	if len(s.Token) < 32 || s.Canary == "" {
		return errors.New("no token came with it")
	}
	if _, err := os.Stat(s.Canary); err == nil && s.Kind == "full" {
		return errors.New("a file of the host's can be seen: " + s.Canary)
	}
	if _, err := os.ReadFile(s.Canary); err == nil {
		return errors.New("a file of the host's can be read: " + s.Canary)
	}
	if os.Getuid() == 0 || os.Geteuid() == 0 {
		return errors.New("this is root")
	}
	var missing []string
	for _, m := range cageMarks {
		weak := slices.ContainsFunc(m.layers, func(l string) bool { return slices.Contains(s.Weak, l) })
		if !weak && !m.seen() {
			missing = append(missing, m.what)
		}
	}
	if len(cageMarks)-len(missing) < enough {
		return fmt.Errorf("it lacks %s", strings.Join(missing, ", "))
	}
	return nil
}

func callPrctl(option int, a uintptr) int {
	v, err := doSyscall(unix.SYS_PRCTL, uintptr(option), a)
	if err != nil {
		return -1
	}
	return int(v)
}

// capabilitySets returns the effective, permitted and inheritable sets of this thread, low words first.
func capabilitySets() (sets [6]uint32) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if _, _, e := syscall.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&sets)),
		0); e != 0 {
		sets[0] = 1 // if the sets cannot be read, they must not count as empty
	}
	return sets
}
