package process

import (
	"net"
	"os"
	"syscall"

	"bailey"
)

// hardenProcess prevents the process's memory from leaving it: no core file is written (setrlimit(2)), and no other
// process of the same user may read it (PR_SET_DUMPABLE of prctl(2): ptrace and /proc/PID/mem are refused, and a core
// that goes to a pipe, which no limit applies to, is not written).
func hardenProcess() (lacks []string, err error) {
	syscall.Umask(0o077)
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return nil, hardeningError("RLIMIT_CORE", err)
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0); e != 0 {
		return nil, hardeningError("PR_SET_DUMPABLE", e)
	}
	return nil, nil
}

func hardeningError(layer string, err error) error {
	return bailey.Unavailable.Wrap(err, "cannot prevent core dumps of the broker: "+layer,
		"use a kernel that supports this")
}

// notifyReady tells systemd that the socket exists (sd_notify(3)).
func notifyReady() {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if c, err := net.Dial("unixgram", name); err == nil {
		_, _ = c.Write([]byte("READY=1")) // if this fails, systemd reports it
		c.Close()
	}
}
