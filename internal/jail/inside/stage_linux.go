package inside

import (
	"syscall"
	"unsafe"
)

// runStage is the main function of a stage: it applies the steps to itself, one by one, and becomes the tool. It never
// returns. Its reports go to its keeper.
func runStage() {
	if rawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0) != 0 || setSignalHandlers(toDefault) != 0 {
		syscall.Exit(1)
	}
	steps, ok := receiveSteps()
	if !ok {
		syscall.Exit(1)
	}
	for i, s := range steps {
		if s.Op == Become {
			sendReport(Started, 0, 0)
			if !readFull(make([]byte, 1)) {
				syscall.Exit(1) // the keeper is gone: no process would end the tool
			}
		}
		if _, errno := applyStep(s); errno != 0 {
			sendReport(Failed, uint32(i), uint32(errno))
			syscall.Exit(1)
		}
	}
	sendReport(Started, 0, 0)
	syscall.Exit(0)
}

// toDefault resets signals that the keeper, or the parent of the gateway, ignores.
func toDefault(_, was uintptr) (uintptr, bool) { return sigDfl, was == sigIgn }

// applyStageStep carries out the steps that only a stage gets.
func applyStageStep(s Step) syscall.Errno {
	switch s.Op {
	case Ids:
		return setUserIDs(uintptr(s.N[0]), uintptr(s.N[1]))
	case Reach:
		return errnoOf(syscall.Access(s.S[0], uint32(s.N[0])))
	case Grant:
		return grantRights(s.S[0], s.N)
	case Home:
		fd, e := donatedFD(s.N[0])
		if e != 0 {
			return e
		}
		return errnoOf(syscall.Fchdir(fd))
	case Tasks:
		const resource = 6 // RLIMIT_NPROC
		lim := [2]uint64{s.N[0], s.N[0]}
		return rawSyscall(syscall.SYS_PRLIMIT64, 0, resource, uintptr(unsafe.Pointer(&lim)))
	case Leash:
		const setDeathSignal = 1 // PR_SET_PDEATHSIG; the answer to Started proves that the keeper was still there
		return rawSyscall(syscall.SYS_PRCTL, setDeathSignal, uintptr(syscall.SIGKILL), 0)
	case Once:
		return installNotifyFilter(s.N)
	case Become:
		return execTool(s)
	}
	return syscall.EBADMSG
}

// setUserIDs gives up all groups and permanently takes the ids of another user. It affects this thread only: the others end
// when it becomes the tool.
func setUserIDs(uid, gid uintptr) syscall.Errno {
	if e := rawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return e
	}
	if e := rawSyscall(syscall.SYS_SETRESGID, gid, gid, gid); e != 0 {
		return e
	}
	return rawSyscall(syscall.SYS_SETRESUID, uid, uid, uid)
}

// grantRights gives rights on a donated descriptor, or on the file at path, which must be the very file that was checked.
func grantRights(path string, n []uint64) syscall.Errno {
	var fd uintptr
	if n[0] != ByPath {
		donated, e := donatedFD(n[0])
		if e != 0 {
			return e
		}
		fd = uintptr(donated)
	} else {
		opened, e := openPath(path)
		if e != 0 {
			return e
		}
		fd = opened
		defer syscall.Close(int(opened))
	}
	if e := checkIdentity(fd, n[1], n[2]); e != 0 {
		return e
	}
	return addRuleForFD(fd, n[3])
}

// execTool replaces this process by the tool. The bound on memory comes last: this program could not run under it, so
// everything that the call needs must exist before.
func execTool(s Step) syscall.Errno {
	const resource = 2 // RLIMIT_DATA
	n := s.N[0]
	if n == 0 || n > uint64(len(s.S)-1) {
		return syscall.EBADMSG
	}
	path, err := syscall.BytePtrFromString(s.S[0])
	if err != nil {
		return errnoOf(err)
	}
	argv, err := syscall.SlicePtrFromStrings(s.S[1 : 1+n])
	if err != nil {
		return errnoOf(err)
	}
	env, err := syscall.SlicePtrFromStrings(s.S[1+n:])
	if err != nil {
		return errnoOf(err)
	}
	if len(s.N) > 2 && s.N[2] == 1 {
		if e := rawSyscall(syscall.SYS_IOCTL, 0, syscall.TIOCSCTTY, 0); e != 0 {
			return e
		}
	}
	lim := [2]uint64{s.N[1], s.N[1]}
	if e := rawSyscall(syscall.SYS_PRLIMIT64, 0, resource, uintptr(unsafe.Pointer(&lim))); e != 0 {
		return e
	}
	// A keeper that listens answers this call, so the runtime must know that the thread may block.
	_, _, e := syscall.Syscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&argv[0])),
		uintptr(unsafe.Pointer(&env[0])))
	return e
}

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
