package inside

import (
	"syscall"
	"unsafe"
)

// perform is the main function of a stage: it applies the steps to itself, one by one, and becomes the tool. It never
// returns. Its reports go to its keeper.
func perform() {
	if call(syscall.SYS_PRCTL, prSetDumpable, 0, 0) != 0 || handle(toDefault) != 0 {
		syscall.Exit(1)
	}
	steps, ok := receive()
	if !ok {
		syscall.Exit(1)
	}
	for i, s := range steps {
		if s.Op == Become {
			report(Started, 0, 0)
			if !fill(make([]byte, 1)) {
				syscall.Exit(1) // the keeper is gone: no process would end the tool
			}
		}
		if _, errno := apply(s); errno != 0 {
			report(Failed, uint32(i), uint32(errno))
			syscall.Exit(1)
		}
	}
	report(Started, 0, 0)
	syscall.Exit(0)
}

// toDefault resets signals that the keeper, or the parent of the gateway, ignores.
func toDefault(_, was uintptr) (uintptr, bool) { return sigDfl, was == sigIgn }

// enact carries out the steps that only a stage gets.
func enact(s Step) syscall.Errno {
	switch s.Op {
	case Ids:
		return ids(uintptr(s.N[0]), uintptr(s.N[1]))
	case Reach:
		return number(syscall.Access(s.S[0], uint32(s.N[0])))
	case Grant:
		return grant(s.S[0], s.N)
	case Home:
		if s.N[0] >= uint64(len(donated)) {
			return syscall.EBADMSG
		}
		return number(syscall.Fchdir(donated[s.N[0]]))
	case Tasks:
		const resource = 6 // RLIMIT_NPROC
		lim := [2]uint64{s.N[0], s.N[0]}
		return call(syscall.SYS_PRLIMIT64, 0, resource, uintptr(unsafe.Pointer(&lim)))
	case Leash:
		const setDeathSignal = 1 // PR_SET_PDEATHSIG; the answer to Started proves that the keeper was still there
		return call(syscall.SYS_PRCTL, setDeathSignal, uintptr(syscall.SIGKILL), 0)
	case Once:
		return listen(s.N)
	case Become:
		return become(s)
	}
	return syscall.EBADMSG
}

// ids gives up all groups and permanently takes the ids of another user. It affects this thread only: the others end
// when it becomes the tool.
func ids(uid, gid uintptr) syscall.Errno {
	if e := call(syscall.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return e
	}
	if e := call(syscall.SYS_SETRESGID, gid, gid, gid); e != 0 {
		return e
	}
	return call(syscall.SYS_SETRESUID, uid, uid, uid)
}

// grant gives rights on a donated descriptor, or on the file at path, which must be the very file that was checked.
func grant(path string, n []uint64) syscall.Errno {
	var fd uintptr
	if n[0] != ByPath {
		if n[0] >= uint64(len(donated)) {
			return syscall.EBADMSG
		}
		fd = uintptr(donated[n[0]])
	} else {
		opened, e := open(path)
		if e != 0 {
			return e
		}
		fd = opened
		defer syscall.Close(int(opened))
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(fd), &st); err != nil {
		return number(err)
	}
	if n[2] != 0 && (uint64(st.Dev) != n[1] || st.Ino != n[2]) {
		return syscall.ESTALE
	}
	return allow(fd, n[3])
}

// become replaces this process by the tool. The bound on memory comes last: this program could not run under it, so
// everything that the call needs must exist before.
func become(s Step) syscall.Errno {
	const resource = 2 // RLIMIT_DATA
	n := s.N[0]
	if n == 0 || n > uint64(len(s.S)-1) {
		return syscall.EBADMSG
	}
	path, err := syscall.BytePtrFromString(s.S[0])
	if err != nil {
		return number(err)
	}
	argv, err := syscall.SlicePtrFromStrings(s.S[1 : 1+n])
	if err != nil {
		return number(err)
	}
	env, err := syscall.SlicePtrFromStrings(s.S[1+n:])
	if err != nil {
		return number(err)
	}
	if len(s.N) > 2 && s.N[2] == 1 {
		if e := call(syscall.SYS_IOCTL, 0, syscall.TIOCSCTTY, 0); e != 0 {
			return e
		}
	}
	lim := [2]uint64{s.N[1], s.N[1]}
	if e := call(syscall.SYS_PRLIMIT64, 0, resource, uintptr(unsafe.Pointer(&lim))); e != 0 {
		return e
	}
	// A keeper that listens answers this call, so the runtime must know that the thread may block.
	_, _, e := syscall.Syscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])))
	return e
}
