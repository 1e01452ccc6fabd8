package inside

import (
	"syscall"
	"unsafe"
)

// A stage that may execute only one program installs a filter that asks a listener about every execve
// (seccomp_unotify(2)), and passes the listener to its keeper. The keeper lets the stage's own requests pass and closes
// the listener once the stage has become the tool: from then on every execve returns ENOSYS. The keeper examines no
// arguments, so a race on their content is impossible.

// installNotifyFilter installs the filter of a program and passes the listener on.
func installNotifyFilter(program []uint64) syscall.Errno {
	const setModeFilter, newListener = 1, 1 << 3 // SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER
	prog := newSockFprog(program)
	fd, e := call6(sysSeccomp, setModeFilter, newListener, uintptr(unsafe.Pointer(&prog)), 0, 0, 0)
	if e != 0 {
		return e
	}
	var b [ReportSize]byte
	b[0] = Listening
	e = errnoOf(syscall.Sendmsg(Socket, b[:], syscall.UnixRights(int(fd)), nil, 0))
	syscall.Close(int(fd))
	return e
}

// allowSingleExec lets the stage execute the tool, waits until it has done so or has ended, and closes the listener. The stage's
// end of the stream is open until then. As long as it is open, only the stage runs behind the filter, so each request
// is from the stage. If a signal arrives, it withdraws a request, even an answered one, so there can be several.
func allowSingleExec(listener, stage int) {
	const (
		receive, send = 0xc0502100, 0xc0182101 // SECCOMP_IOCTL_NOTIF_RECV, _SEND: sizes 80 and 24, type '!'
		goOn          = 1                      // SECCOMP_USER_NOTIF_FLAG_CONTINUE
		pollIn        = 1
	)
	defer syscall.Close(listener)
	fds := [2]struct {
		fd              int32
		events, revents int16
	}{{int32(listener), pollIn, 0}, {int32(stage), pollIn, 0}}
	for {
		_, _, e := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), uintptr(len(fds)), 0, 0, 0, 0)
		if e == syscall.EINTR {
			continue
		}
		if e != 0 || fds[1].revents != 0 {
			return // the stage is the tool, has a report, or is gone
		}
		var ask [10]uint64 // struct seccomp_notif: id, pid and flags, then the call
		e = rawSyscall(syscall.SYS_IOCTL, uintptr(listener), receive, uintptr(unsafe.Pointer(&ask)))
		if e == 0 {
			answer := [3]uint64{ask[0], 0, goOn << 32} // struct seccomp_notif_resp: id, value, error and flags
			e = rawSyscall(syscall.SYS_IOCTL, uintptr(listener), send, uintptr(unsafe.Pointer(&answer)))
		}
		if e != 0 && e != syscall.ENOENT && e != syscall.EINTR {
			return
		}
	}
}
