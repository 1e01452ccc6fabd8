package inside

import (
	"syscall"
	"unsafe"
)

// System calls that package syscall does not name. Their numbers are the same on every architecture
// (Linux: scripts/syscall.tbl).
const (
	sysOpenTree     = 428
	sysMoveMount    = 429
	sysCloseRange   = 436
	sysOpenat2      = 437
	sysMountSetattr = 442
)

// Constants of linux/fcntl.h, mount.h, openat2.h, prctl.h, keyctl.h.
const (
	atFDCWD      = -100
	atEmptyPath  = 0x1000
	atRecursive  = 0x8000
	oPath        = 0x200000
	treeClone    = 1
	moveFromFD   = 0x4 // MOVE_MOUNT_F_EMPTY_PATH
	moveToFD     = 0x40
	noMagicLinks = 0x2
	noSymlinks   = 0x4

	prSetDumpable   = 4
	prCapbsetDrop   = 24
	prSetSecurebits = 28
	prSetNoNewPrivs = 38
	prCapAmbient    = 47
	ambientClearAll = 4
	joinSession     = 1
	capsVersion3    = 0x20080522
)

// apply does one step. It returns the tool's pid after Exec.
func apply(s Step) (tool int, errno syscall.Errno) {
	if len(s.S) < words[s.Op&31] || len(s.N) < numbers[s.Op&31] {
		return 0, syscall.EBADMSG
	}
	switch s.Op {
	case Undump:
		return 0, call(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
	case Signals:
		return 0, signals()
	case Private:
		return 0, number(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	case Tmpfs:
		return 0, number(syscall.Mount("tmpfs", s.S[0], "tmpfs", uintptr(s.N[0]), s.S[1]))
	case Proc:
		return 0, number(syscall.Mount("proc", s.S[0], "proc", uintptr(s.N[0]), s.S[1]))
	case Enter:
		return 0, number(syscall.Chdir(s.S[0]))
	case Dir:
		return 0, number(syscall.Mkdir(s.S[0], uint32(s.N[0])))
	case File:
		return 0, file(s.S[0], s.S[1], uint32(s.N[0]))
	case Link:
		return 0, number(syscall.Symlink(s.S[1], s.S[0]))
	case Bind:
		return 0, bind(s.S[0], s.S[1], s.N[0], s.N[1], s.N[2])
	case Donated:
		return 0, attach(uintptr(s.N[0]), s.S[1])
	case Seal:
		return 0, setattr(fdcwd, ".", 0, s.N[0])
	case Pivot:
		return 0, pivot()
	}
	return restrict(s)
}

// words and numbers hold how many arguments each operation needs at least.
var words = [32]int{Tmpfs: 2, Proc: 2, Enter: 1, Dir: 1, File: 2, Link: 2, Bind: 2, Donated: 2, Host: 1, Chdir: 1, Exec: 2}
var numbers = [32]int{Tmpfs: 1, Proc: 1, Dir: 1, File: 1, Bind: 3, Donated: 1, Seal: 1, Rlimit: 3, Securebits: 1, Umask: 1, Exec: 1}

// restrict does the steps that take something away from this thread, and the start of the tool.
func restrict(s Step) (tool int, errno syscall.Errno) {
	switch s.Op {
	case Host:
		if e := number(syscall.Sethostname([]byte(s.S[0]))); e != 0 {
			return 0, e
		}
		return 0, number(syscall.Setdomainname(nil))
	case Rlimit:
		lim := [2]uint64{s.N[1], s.N[2]}
		return 0, call(syscall.SYS_PRLIMIT64, 0, uintptr(s.N[0]), uintptr(unsafe.Pointer(&lim)))
	case Keyring:
		if e := call(syscall.SYS_KEYCTL, joinSession, 0, 0); e != syscall.ENOSYS {
			return 0, e // ENOSYS: a kernel without keyrings has none to inherit
		}
	case Bounding:
		return 0, bounding()
	case Securebits:
		return 0, call(syscall.SYS_PRCTL, prSetSecurebits, uintptr(s.N[0]), 0)
	case NoNewPrivs:
		return 0, call(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0)
	case Caps:
		return 0, caps()
	case Descriptors:
		syscall.CloseOnExec(Socket)
		return 0, call(sysCloseRange, Socket+1, 1<<32-1, 0)
	case Umask:
		syscall.Umask(int(s.N[0]))
	case Chdir:
		return 0, chdir(s.S[0])
	case Exec:
		return start(s)
	case Done:
	default:
		return 0, syscall.EBADMSG
	}
	return 0, 0
}

// bind clones the tree at source and attaches it at target. The source must be the very file the plan
// names: a name that leads through a symlink, or elsewhere by now, is ESTALE or ELOOP.
func bind(source, target string, dev, ino, attrs uint64) syscall.Errno {
	fd, e := open(source)
	if e != 0 {
		return e
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(fd), &st); err != nil {
		return number(err)
	}
	if ino != 0 && (uint64(st.Dev) != dev || st.Ino != ino) {
		return syscall.ESTALE
	}
	// Recursive, since mounts inherited by a less privileged mount namespace are locked together and
	// the kernel shows none of them without those that cover it (mount_namespaces(7)).
	tree, e := call6(sysOpenTree, fd, uintptr(unsafe.Pointer(&empty)),
		treeClone|atRecursive|atEmptyPath|syscall.O_CLOEXEC, 0, 0, 0)
	syscall.Close(int(fd))
	if e != 0 {
		return e
	}
	if e := setattr(tree, "", atEmptyPath|atRecursive, attrs); e != 0 {
		return e
	}
	return attach(tree, target)
}

// attach moves a detached mount onto target and closes it.
func attach(tree uintptr, target string) syscall.Errno {
	at, e := open(target)
	if e != 0 {
		return e
	}
	_, e = call6(sysMoveMount, tree, uintptr(unsafe.Pointer(&empty)), at, uintptr(unsafe.Pointer(&empty)), moveFromFD|moveToFD, 0)
	syscall.Close(int(at))
	syscall.Close(int(tree))
	return e
}

// pivot makes the current directory the root. The old root lands on top of it and is detached
// (pivot_root(2), "pivot_root(".", ".")").
func pivot() syscall.Errno {
	dot := []byte{'.', 0}
	if e := call(syscall.SYS_PIVOT_ROOT, uintptr(unsafe.Pointer(&dot[0])), uintptr(unsafe.Pointer(&dot[0])), 0); e != 0 {
		return e
	}
	if e := number(syscall.Unmount(".", syscall.MNT_DETACH)); e != 0 {
		return e
	}
	return number(syscall.Chdir("/"))
}

// chdir enters a directory of the cage without following a symlink on the way.
func chdir(path string) syscall.Errno {
	fd, e := open(path)
	if e != 0 {
		return e
	}
	defer syscall.Close(int(fd))
	return number(syscall.Fchdir(int(fd)))
}

// file writes a new file.
func file(path, content string, mode uint32) syscall.Errno {
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, mode)
	if err != nil {
		return number(err)
	}
	defer syscall.Close(fd)
	if content == "" {
		return 0
	}
	n, err := syscall.Write(fd, []byte(content))
	if err == nil && n != len(content) {
		return syscall.ENOSPC
	}
	return number(err)
}

// start begins the tool as a child of this thread, in a session of its own, then lets go of its
// streams: only the tool and its descendants hold them.
func start(s Step) (int, syscall.Errno) {
	n := s.N[0]
	if n == 0 || n > uint64(len(s.S)-1) {
		return 0, syscall.EBADMSG
	}
	argv, env := s.S[1:1+n], s.S[1+n:]
	pid, err := syscall.ForkExec(s.S[0], argv, &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return 0, number(err)
	}
	for fd := range 3 {
		syscall.Close(fd)
	}
	return pid, 0
}

// signals keeps the tool from ending PID 1, which shares its uid. The kernel drops what has its default
// action in a namespace's init, unless the first thread blocks it, as it does while it forks: then a
// second thread takes it and dies with all (complete_signal in kernel/signal.c). So what the Go runtime
// handles is ignored from here on; the runtime gives the tool the default action of those. What came
// ignored from the gateway (nohup) becomes default, since the runtime would pass it on. That leaves those
// and 32 and 33, the C library's, with which a tool that is quick can end its own cage and no other.
func signals() syscall.Errno {
	const ignore = 1 // SIG_IGN
	for sig := uintptr(1); sig <= 64; sig++ {
		var act [4]uint64 // struct kernel_sigaction: handler, flags, restorer, mask
		_, e := call6(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&act)), 8, 0, 0)
		if e != 0 {
			return e
		}
		handled := act[0] > ignore
		if act = [4]uint64{}; handled && sig != uintptr(syscall.SIGCHLD) {
			act[0] = ignore
		}
		_, e = call6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0)
		if e != 0 && e != syscall.EINVAL { // SIGKILL, SIGSTOP
			return e
		}
	}
	return 0
}

// bounding empties the bounding set up to the last capability this kernel knows.
func bounding() syscall.Errno {
	for c := uintptr(0); c < 64; c++ {
		if e := call(syscall.SYS_PRCTL, prCapbsetDrop, c, 0); e == syscall.EINVAL && c > 0 {
			return 0
		} else if e != 0 {
			return e
		}
	}
	return 0
}

// caps empties the ambient, effective, permitted and inheritable sets.
func caps() syscall.Errno {
	if e := call(syscall.SYS_PRCTL, prCapAmbient, ambientClearAll, 0); e != 0 {
		return e
	}
	head := [2]uint32{capsVersion3, 0}
	var none [6]uint32
	return call(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&none)), 0)
}

// empty is the empty path that AT_EMPTY_PATH wants.
var empty byte

// fdcwd in a register.
const fdcwd = ^uintptr(-atFDCWD - 1)

// open returns an O_PATH descriptor, following no symlink anywhere in path.
func open(path string) (uintptr, syscall.Errno) {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return 0, syscall.EINVAL
	}
	how := [3]uint64{oPath | syscall.O_CLOEXEC, 0, noSymlinks | noMagicLinks}
	return call6(sysOpenat2, fdcwd, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
}

// setattr adds mount attributes. It never clears one: what the host set stays.
func setattr(fd uintptr, path string, flags uintptr, attrs uint64) syscall.Errno {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return syscall.EINVAL
	}
	attr := [4]uint64{attrs, 0, 0, 0}
	_, e := call6(sysMountSetattr, fd, uintptr(unsafe.Pointer(p)), flags, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	return e
}

//go:uintptrescapes
func call(trap, a, b, c uintptr) syscall.Errno {
	_, e := call6(trap, a, b, c, 0, 0, 0)
	return e
}

//go:uintptrescapes
func call6(trap, a, b, c, d, e, f uintptr) (uintptr, syscall.Errno) {
	r, _, errno := syscall.RawSyscall6(trap, a, b, c, d, e, f)
	return r, errno
}

// number turns an error of package syscall into its errno.
func number(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if e, ok := err.(syscall.Errno); ok {
		return e
	}
	return syscall.EINVAL
}
