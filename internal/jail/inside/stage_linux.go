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
		if s.N[0] >= uint64(len(donatedFDs)) {
			return syscall.EBADMSG
		}
		return errnoOf(syscall.Fchdir(donatedFDs[s.N[0]]))
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
		if n[0] >= uint64(len(donatedFDs)) {
			return syscall.EBADMSG
		}
		fd = uintptr(donatedFDs[n[0]])
	} else {
		opened, e := openPath(path)
		if e != 0 {
			return e
		}
		fd = opened
		defer syscall.Close(int(opened))
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(fd), &st); err != nil {
		return errnoOf(err)
	}
	if n[2] != 0 && (uint64(st.Dev) != n[1] || st.Ino != n[2]) {
		return syscall.ESTALE
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
