package inside

import "syscall"

// System calls for which package syscall has no name. Their numbers are the same on every architecture (Linux:
// scripts/syscall.tbl).
const (
	sysOpenTree      = 428
	sysMoveMount     = 429
	sysCloseRange    = 436
	sysOpenat2       = 437
	sysMountSetattr  = 442
	sysCreateRuleset = 444
	sysAddRule       = 445
	sysRestrictSelf  = 446

	sysPidfdSendSignal = 424
	sysPidfdOpen       = 434
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

// emptyPath is the empty path for AT_EMPTY_PATH.
var emptyPath byte

// Signal handlers (sigaction(2)).
const sigDfl, sigIgn uintptr = 0, 1

// fdcwd is AT_FDCWD in a register.
const fdcwd = ^uintptr(-atFDCWD - 1)

//go:uintptrescapes
func rawSyscall(trap, a, b, c uintptr) syscall.Errno {
	_, e := call6(trap, a, b, c, 0, 0, 0)
	return e
}

//go:uintptrescapes
func call6(trap, a, b, c, d, e, f uintptr) (uintptr, syscall.Errno) {
	r, _, errno := syscall.RawSyscall6(trap, a, b, c, d, e, f)
	return r, errno
}

// errnoOf turns an error of package syscall into its errno.
func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if e, ok := err.(syscall.Errno); ok {
		return e
	}
	return syscall.EINVAL
}
