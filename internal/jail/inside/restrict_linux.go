package inside

import (
	"syscall"
	"unsafe"
)

// ApplyRestriction carries out a step that restricts this thread, which must be locked to its goroutine.
func ApplyRestriction(s Step) syscall.Errno {
	_, errno := applyRestriction(s)
	return errno
}

// applyRestriction carries out the steps that restrict this thread, and the start of the tool.
func applyRestriction(s Step) (tool int, errno syscall.Errno) {
	switch s.Op {
	case Host:
		if e := errnoOf(syscall.Sethostname([]byte(s.S[0]))); e != 0 {
			return 0, e
		}
		return 0, errnoOf(syscall.Setdomainname(nil))
	case Rlimit:
		lim := [2]uint64{s.N[1], s.N[2]}
		return 0, rawSyscall(syscall.SYS_PRLIMIT64, 0, uintptr(s.N[0]), uintptr(unsafe.Pointer(&lim)))
	case Keyring:
		// If a kernel has no keyrings, the tool inherits none. If the filter of a container denies keyctl, for example
		// Docker's, it denies it to the tool too.
		if e := rawSyscall(syscall.SYS_KEYCTL, joinSession, 0, 0); e != syscall.ENOSYS && e != syscall.EPERM {
			return 0, e
		}
	case Bounding:
		return 0, dropBoundingSet()
	case Securebits:
		return 0, rawSyscall(syscall.SYS_PRCTL, prSetSecurebits, uintptr(s.N[0]), 0)
	case NoNewPrivs:
		return 0, rawSyscall(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0)
	case Caps:
		return 0, dropCapabilities()
	case Filter, Narrow:
		return 0, installFilter(s.N)
	case Descriptors:
		syscall.CloseOnExec(Socket)
		return 0, rawSyscall(sysCloseRange, Socket+1, 1<<32-1, 0)
	case Ruleset:
		return 0, createRuleset(s.N)
	case Rule:
		return 0, addRule(s.S[0], s.N[0])
	case Restrict:
		return 0, restrictSelf()
	case Umask:
		syscall.Umask(int(s.N[0]))
	case Chdir:
		return 0, changeDir(s.S[0])
	case Exec:
		return startTool(s)
	case Done:
	default:
		return 0, applyStageStep(s)
	}
	return 0, 0
}

// startTool starts the tool as a child of this thread, in its own session, then closes the tool's streams: only the tool
// and its descendants hold them. If there is a terminal, it becomes the controlling terminal of that session.
func startTool(s Step) (int, syscall.Errno) {
	n := s.N[0]
	if n == 0 || n > uint64(len(s.S)-1) {
		return 0, syscall.EBADMSG
	}
	argv, env := s.S[1:1+n], s.S[1+n:]
	pid, err := syscall.ForkExec(s.S[0], argv, &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: len(s.N) > 2 &&
			s.N[2] == 1}})
	if err != nil {
		return 0, errnoOf(err)
	}
	if holdData(pid, s.N[1]) != 0 {
		syscall.Kill(pid, syscall.SIGKILL) // the tool has run: its end reports that, an error here would deny it
	}
	for fd := range 3 {
		syscall.Close(fd)
	}
	return pid, 0
}

// installFilter installs a seccomp program on this thread, which the tool inherits (seccomp(2)).
func installFilter(program []uint64) syscall.Errno {
	const setSeccomp, modeFilter = 22, 2 // PR_SET_SECCOMP, SECCOMP_MODE_FILTER
	prog := newSockFprog(program)
	return rawSyscall(syscall.SYS_PRCTL, setSeccomp, modeFilter, uintptr(unsafe.Pointer(&prog)))
}

// sockFprog is struct sock_fprog.
type sockFprog struct {
	n    uint16
	code unsafe.Pointer
}

func newSockFprog(program []uint64) sockFprog {
	return sockFprog{uint16(len(program)), unsafe.Pointer(unsafe.SliceData(program))}
}

// holdData bounds the private writable memory of the tool. PID 1 itself could not run under that bound. A fast tool may
// already have set a lower bound on itself permanently, which this process cannot raise.
func holdData(pid int, n uint64) syscall.Errno {
	const resource = 2 // RLIMIT_DATA
	lim := [2]uint64{n, n}
	_, e := call6(syscall.SYS_PRLIMIT64, uintptr(pid), resource, uintptr(unsafe.Pointer(&lim)), 0, 0, 0)
	if e != syscall.EPERM {
		return e
	}
	if _, unknown := call6(syscall.SYS_PRLIMIT64, uintptr(pid), resource, 0, uintptr(unsafe.Pointer(&lim)), 0,
		0); unknown == 0 && lim[1] <= n {
		return 0
	}
	return e
}

// resetSignals prevents the tool, which has the same uid, from ending PID 1. In the init of a namespace the kernel drops
// signals with default action, unless the first thread blocks the signal, as it does while it forks: then a second
// thread takes it and the whole process dies (complete_signal in kernel/signal.c). So signals that the Go runtime
// handles are ignored from here on; the runtime gives the tool their default action. Signals that the gateway ignored,
// for example under nohup, become default, since the runtime would pass them on as ignored. With those, and with 32 to
// 34 of the C library, a fast tool can still end its own cage, but no other.
func resetSignals() syscall.Errno {
	return setSignalHandlers(func(sig, was uintptr) (uintptr, bool) {
		if was > sigIgn && sig != uintptr(syscall.SIGCHLD) {
			return sigIgn, true
		}
		return sigDfl, true
	})
}

// setSignalHandlers goes through all signals and sets a new handler if by returns one.
func setSignalHandlers(by func(sig, was uintptr) (handler uintptr, set bool)) syscall.Errno {
	for sig := uintptr(1); sig <= 64; sig++ {
		var act [4]uint64 // struct kernel_sigaction: handler, flags, restorer, mask
		_, e := call6(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&act)), 8, 0, 0)
		if e != 0 {
			return e
		}
		handler, set := by(sig, uintptr(act[0]))
		if !set {
			continue
		}
		act = [4]uint64{uint64(handler)}
		_, e = call6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0)
		if e != 0 && e != syscall.EINVAL { // EINVAL: SIGKILL, SIGSTOP
			return e
		}
	}
	return 0
}

// dropBoundingSet empties the bounding set up to the last capability that this kernel knows.
func dropBoundingSet() syscall.Errno {
	for c := uintptr(0); c < 64; c++ {
		if e := rawSyscall(syscall.SYS_PRCTL, prCapbsetDrop, c, 0); e == syscall.EINVAL && c > 0 {
			return 0
		} else if e != 0 {
			return e
		}
	}
	return 0
}

// dropCapabilities empties the ambient, effective, permitted and inheritable sets.
func dropCapabilities() syscall.Errno {
	if e := rawSyscall(syscall.SYS_PRCTL, prCapAmbient, ambientClearAll, 0); e != 0 {
		return e
	}
	head := [2]uint32{capsVersion3, 0}
	var none [6]uint32
	return rawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&none)), 0)
}

// rulesetFD is the Landlock ruleset under construction (landlock(7)).
var rulesetFD uintptr

// createRuleset passes struct landlock_ruleset_attr. An older kernel accepts the longer form if the fields that it does
// not know are zero.
func createRuleset(n []uint64) (e syscall.Errno) {
	attr := [3]uint64{n[0], n[1], n[2]}
	rulesetFD, e = call6(sysCreateRuleset, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0, 0, 0, 0)
	return e
}

// addRule grants rights on path and everything beneath.
func addRule(path string, rights uint64) syscall.Errno {
	fd, e := openPath(path)
	if e != 0 {
		return e
	}
	e = addRuleForFD(fd, rights)
	syscall.Close(int(fd))
	return e
}

func addRuleForFD(fd uintptr, rights uint64) syscall.Errno {
	const pathBeneath = 1 // LANDLOCK_RULE_PATH_BENEATH
	attr := struct {      // struct landlock_path_beneath_attr is packed: the padding after fd is not read
		rights uint64
		fd     int32
	}{rights, int32(fd)}
	_, e := call6(sysAddRule, rulesetFD, pathBeneath, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	return e
}

// restrictSelf is permanent, for this thread and all processes it starts.
func restrictSelf() syscall.Errno {
	e := rawSyscall(sysRestrictSelf, rulesetFD, 0, 0)
	syscall.Close(int(rulesetFD))
	return e
}
