package ktest

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	cloneUser = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
	cloneNet  = syscall.CLONE_NEWNET
)

// namespaceProbe starts a program in the namespaces. Ubuntu's AppArmor rule allows the clone and refuses the first
// mount, so
// this proves less than Probe of a jail.
func namespaceProbe(flags uintptr) func() error {
	return func() error {
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  flags,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getegid(), Size: 1}},
		}
		return cmd.Run()
	}
}

func probeLandlock() error {
	const createVersion = 1 // LANDLOCK_CREATE_RULESET_VERSION, landlock(7)
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, createVersion); e != 0 {
		return e
	}
	return nil
}

func probeSeccomp() error {
	// PR_GET_SECCOMP returns 0 if filters can be installed, and EINVAL without kernel support.
	if _, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil {
		return err
	}
	return nil
}

// probeCgroup checks that this process can create a group in a hierarchy of either version.
func probeCgroup() error {
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified"} {
		probe := dir + "/bailey-ktest"
		if err := os.Mkdir(probe, 0o755); err == nil {
			return os.Remove(probe)
		}
	}
	return errors.New("no cgroup hierarchy in which a group can be made")
}

func probeKeyring() error {
	_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_PROCESS_KEYRING, true)
	return err
}
