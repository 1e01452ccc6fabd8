package inside

import (
	"syscall"
	"unsafe"
)

// A child of the helper is made by clone3(2), with this process's memory and its own descriptors, and runs no Go code:
// it walks a table of system calls in registers alone (child_linux_*.s). These invariants keep that safe:
//
//   - The table, and everything that it points to, must lie in an [arena] outside the Go heap: the collector neither
//     moves nor frees it, and it must not change until the child has executed its program or has ended.
//   - The child has the caller's stack pointer but must never use it: no call, no push, no signal frame. Every signal
//     is blocked from before the clone until the row before the child's execve, and CLONE_CLEAR_SIGHAND leaves no
//     handler that could run then.
//   - It reads no state of the runtime (neither g nor thread-local storage), and writes two words of its arena.
//   - The thread that clones must be locked to its goroutine: its new namespaces and its blocked signals are its own.

// A row is one system call of a table, in the layout that the assembly reads.
type syscallRow struct {
	trap uintptr
	args [6]uintptr
	mode uintptr
}

// How the result of a row is handled.
const (
	must    uintptr = iota // if it is an error, the child ends
	some                   // as must, and also if it is zero: the other end of a descriptor is gone
	again                  // continue at the row in the last argument, which the kernel does not read
	leave                  // as must, unless the error is ENOSYS or EPERM
	rowSize = unsafe.Sizeof(syscallRow{})
)

// A progress is the state of a child, written only by the child.
type childProgress struct {
	at     uintptr // the current row
	result uintptr // of the row that ended it
}

// cloneArgs is the first version of struct clone_args of clone3(2): flags, pidfd, child_tid, parent_tid, exit_signal,
// stack, stack_size, tls.
type cloneArgs [8]uint64

const (
	cloneClear   = 1 << 32 // CLONE_CLEAR_SIGHAND
	childFailed  = 127     // exit status if a row ended the child
	cloneVM      = syscall.CLONE_VM
	cloneArgsLen = unsafe.Sizeof(cloneArgs{})
)

// spawnChild starts a child at the first row of a table.
func spawnChild(a *arena, table []syscallRow, p *childProgress) (pid int, e syscall.Errno) {
	args := take1[cloneArgs](a)
	if args == nil {
		return 0, syscall.ENOMEM
	}
	args[0], args[4] = cloneVM|cloneClear, uint64(syscall.SIGCHLD)
	*p = childProgress{}
	all := ^uint64(0)
	var was uint64
	if e := setSignalMask(&all, &was); e != 0 {
		return 0, e
	}
	r := cloneAndWalk(args, cloneArgsLen, &table[0], p)
	if e := setSignalMask(&was, nil); e != 0 {
		return 0, e
	}
	if r < 0 {
		return 0, syscall.Errno(-r)
	}
	return r, 0
}

func setSignalMask(set, old *uint64) syscall.Errno {
	const setMask = 2 // SIG_SETMASK
	_, e := call6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0,
		0)
	return e
}

// endingRow returns which row of a table ended its child, and the error. failed is false if the last row of the child was
// its execve, or if the child was killed.
func (p *childProgress) endingRow(table []syscallRow,
	status syscall.WaitStatus) (at int, e syscall.Errno, failed bool) {
	at = p.currentRow(table)
	if !status.Exited() || status.ExitStatus() != childFailed || p.result == 0 {
		return at, 0, false
	}
	return at, syscall.Errno(-p.result), true
}

func (p *childProgress) currentRow(table []syscallRow) int {
	if p.at == 0 {
		return 0
	}
	return int((p.at - uintptr(unsafe.Pointer(&table[0]))) / rowSize)
}

// An arena is memory outside the Go heap, allocated from the beginning to the end and freed all at once.
type arena struct {
	b    []byte
	used int
}

func newArena(size int) (*arena, syscall.Errno) {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, errnoOf(err)
	}
	return &arena{b: b}, 0
}

// allocBytes returns n zeroed bytes at an address divisible by 16, or nil if they do not fit.
func (a *arena) allocBytes(n int) []byte {
	if n < 0 || n > len(a.b)-a.used {
		return nil
	}
	from := a.used
	a.used += min((n+15)&^15, len(a.b)-a.used)
	return a.b[from : from+n : from+n]
}

// freeAfter frees and clears everything that was allocated after mark.
func (a *arena) freeAfter(mark int) {
	clear(a.b[mark:a.used])
	a.used = mark
}

// take1 returns a zeroed T in the arena. T must not hold pointers into the Go heap.
func take1[T any](a *arena) *T {
	var t T
	b := a.allocBytes(int(unsafe.Sizeof(t)))
	if b == nil {
		return nil
	}
	return (*T)(unsafe.Pointer(&b[0]))
}

// sliceAddress returns the address of a byte slice of the arena, which does not move.
func sliceAddress(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
