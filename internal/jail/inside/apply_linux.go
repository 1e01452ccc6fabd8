package inside

import "syscall"

// applyStep carries out one step. After Exec it returns the pid of the tool.
func applyStep(s Step) (tool int, errno syscall.Errno) {
	if len(s.S) < minStrings[s.Op&63] || len(s.N) < minNumbers[s.Op&63] {
		return 0, syscall.EBADMSG
	}
	switch s.Op {
	case Unshare:
		return 0, errnoOf(syscall.Unshare(int(s.N[0])))
	case Undump:
		return 0, rawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
	case Signals:
		return 0, resetSignals()
	case Private:
		return 0, errnoOf(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	case Tmpfs, Fresh:
		return 0, errnoOf(syscall.Mount("tmpfs", s.S[0], "tmpfs", uintptr(s.N[0]), s.S[1]))
	case Proc:
		return 0, errnoOf(syscall.Mount("proc", s.S[0], "proc", uintptr(s.N[0]), s.S[1]))
	case Terminals:
		return 0, errnoOf(syscall.Mount("devpts", s.S[0], "devpts", uintptr(s.N[0]), s.S[1]))
	case Enter:
		return 0, errnoOf(syscall.Chdir(s.S[0]))
	case Dir:
		return 0, errnoOf(syscall.Mkdir(s.S[0], uint32(s.N[0])))
	case File:
		return 0, writeNewFile(s.S[0], s.S[1], uint32(s.N[0]))
	case Link:
		return 0, errnoOf(syscall.Symlink(s.S[1], s.S[0]))
	case Bind:
		return 0, bindMount(s.S[0], s.S[1], s.N[0], s.N[1], s.N[2])
	case Donated:
		if s.N[0] >= uint64(len(donatedFDs)) {
			return 0, syscall.EBADMSG
		}
		return 0, attachMount(uintptr(donatedFDs[s.N[0]]), s.S[1])
	case Copy, Lend:
		if s.N[0] >= uint64(len(donatedFDs)) {
			return 0, syscall.EBADMSG
		}
		return 0, copyIn(donatedFDs[s.N[0]], s.S[1], uint32(s.N[1]), int64(s.N[2]))
	case Seal:
		return 0, addMountAttrs(fdcwd, s.S[0], 0, s.N[0])
	case Pivot:
		return 0, pivotRoot()
	case Loopback:
		return 0, bringUpLoopback()
	case Listen:
		return 0, offerListener(s)
	}
	return applyRestriction(s)
}

// minStrings and numbers hold the minimum number of strings and numbers of each operation.
var minStrings = [64]int{Tmpfs: 2, Fresh: 2, Proc: 2, Enter: 1, Dir: 1, File: 2, Link: 2, Bind: 2, Donated: 2, Copy: 2,
	Lend: 2, Seal: 1, Host: 1, Chdir: 1, Exec: 2, Rule: 1,
	Reach: 1, Grant: 1, Become: 2, Listen: 1, Terminals: 2}
var minNumbers = [64]int{Tmpfs: 1, Fresh: 1, Proc: 1, Dir: 1, File: 1, Bind: 3, Donated: 1, Copy: 3, Lend: 3, Seal: 1,
	Rlimit: 3, Securebits: 1, Umask: 1, Exec: 2, Filter: 1, Ruleset: 3, Rule: 1, Unshare: 1,
	Ids: 2, Reach: 1, Grant: 4, Home: 1, Tasks: 2, Become: 2, Listen: 3, Terminals: 1}
