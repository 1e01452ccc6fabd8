package inside

import (
	"syscall"
	"unsafe"
)

// A stage that may execute one program and no more installs a filter that asks a listener about every execve
// (seccomp_unotify(2)), and hands the listener to its keeper. That lets the first one pass, which is the
// stage's own, and closes the listener: from then on each is ENOSYS. No argument is looked at, so nothing can
// be exchanged under the keeper's eyes.

// listen installs the filter of a program and passes the listener on.
func listen(program []uint64) syscall.Errno {
	const setModeFilter, newListener = 1, 1 << 3 // SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER
	prog := instructions(program)
	fd, e := call6(sysSeccomp, setModeFilter, newListener, uintptr(unsafe.Pointer(&prog)), 0, 0, 0)
	if e != 0 {
		return e
	}
	var b [ReportSize]byte
	b[0] = Listening
	e = number(syscall.Sendmsg(Socket, b[:], syscall.UnixRights(int(fd)), nil, 0))
	syscall.Close(int(fd))
	return e
}

// once waits until the stage executes the tool, or has ended, lets it, and listens no more.
func once(listener, stage int) {
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
		if e == 0 {
			break
		}
		if e != syscall.EINTR {
			return
		}
	}
	if fds[0].revents&pollIn == 0 {
		return // the stage has something to report, or is gone
	}
	var ask [10]uint64 // struct seccomp_notif: id, pid and flags, then the call
	if call(syscall.SYS_IOCTL, uintptr(listener), receive, uintptr(unsafe.Pointer(&ask))) != 0 {
		return
	}
	answer := [3]uint64{ask[0], 0, goOn << 32} // struct seccomp_notif_resp: id, value, error and flags
	call(syscall.SYS_IOCTL, uintptr(listener), send, uintptr(unsafe.Pointer(&answer)))
}
