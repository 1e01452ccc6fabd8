package inside

import (
	"syscall"
	"unsafe"
)

// A child of the helper is made by clone3(2) with this process's memory and descriptors of its own, and runs
// no Go code: it walks a table of system calls, in registers alone (child_linux_*.s). What keeps that safe:
//
//   - The table, and all that it points to, lies in an [arena] outside the Go heap: the collector neither moves
//     nor frees it, and it stays as it is until the child has executed its program or has ended.
//   - The child has the caller's stack pointer and never uses it: no call, no push, no signal frame, since every
//     signal is blocked from before the clone until the row before its execve, and CLONE_CLEAR_SIGHAND leaves no
//     handler that could run then.
//   - It reads nothing of the runtime's (neither g nor thread-local storage), and writes two words of its arena.
//   - The thread that clones is locked to its goroutine: what it unshared, and its blocked signals, are its own.

// A row is one system call of a table, laid out as the assembly reads it.
type row struct {
	trap uintptr
	args [6]uintptr
	mode uintptr
}

// What becomes of a row's result.
const (
	must    uintptr = iota // an error ends the child
	some                   // so does zero: the other end of a descriptor is gone
	again                  // on with the row that the last argument points to, which the kernel reads not
	leave                  // an error other than ENOSYS and EPERM ends the child
	rowSize = unsafe.Sizeof(row{})
)

// A progress is what a child has come to, written by it alone.
type progress struct {
	at     uintptr // the row it is at
	result uintptr // of the row that ended it
}

// cloneArgs is struct clone_args of clone3(2) in its first edition: flags, pidfd, child_tid, parent_tid, exit_signal,
// stack, stack_size, tls.
type cloneArgs [8]uint64

const (
	cloneClear   = 1 << 32 // CLONE_CLEAR_SIGHAND
	childFailed  = 127     // exit status of a child that a row has ended
	cloneVM      = syscall.CLONE_VM
	cloneArgsLen = unsafe.Sizeof(cloneArgs{})
)

// spawn starts a child at a table's first row.
func spawn(a *arena, table []row, p *progress) (pid int, e syscall.Errno) {
	args := take1[cloneArgs](a)
	if args == nil {
		return 0, syscall.ENOMEM
	}
	args[0], args[4] = cloneVM|cloneClear, uint64(syscall.SIGCHLD)
	*p = progress{}
	all := ^uint64(0)
	var was uint64
	if e := sigmask(&all, &was); e != 0 {
		return 0, e
	}
	r := walk(args, cloneArgsLen, &table[0], p)
	if e := sigmask(&was, nil); e != 0 {
		return 0, e
	}
	if r < 0 {
		return 0, syscall.Errno(-r)
	}
	return r, 0
}

func sigmask(set, old *uint64) syscall.Errno {
	const setMask = 2 // SIG_SETMASK
	_, e := call6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
	return e
}

// ended tells which row of a table ended its child, and by what; failed is false for a child whose last row was
// its execve, or that was killed.
func (p *progress) ended(table []row, status syscall.WaitStatus) (at int, e syscall.Errno, failed bool) {
	at = p.row(table)
	if !status.Exited() || status.ExitStatus() != childFailed || p.result == 0 {
		return at, 0, false
	}
	return at, syscall.Errno(-p.result), true
}

func (p *progress) row(table []row) int {
	if p.at == 0 {
		return 0
	}
	return int((p.at - uintptr(unsafe.Pointer(&table[0]))) / rowSize)
}

// An arena is memory outside the Go heap, given out from its beginning to its end and taken back all at once.
type arena struct {
	b    []byte
	used int
}

func newArena(size int) (*arena, syscall.Errno) {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, number(err)
	}
	return &arena{b: b}, 0
}

// take returns n zeroed bytes at an address divisible by 16, nil when they do not fit.
func (a *arena) take(n int) []byte {
	if n < 0 || n > len(a.b)-a.used {
		return nil
	}
	from := a.used
	a.used += min((n+15)&^15, len(a.b)-a.used)
	return a.b[from : from+n : from+n]
}

// reset takes everything back that was given out after mark, and clears it.
func (a *arena) reset(mark int) {
	clear(a.b[mark:a.used])
	a.used = mark
}

// take1 returns a zeroed T in the arena; T holds no pointers into the Go heap.
func take1[T any](a *arena) *T {
	var t T
	b := a.take(int(unsafe.Sizeof(t)))
	if b == nil {
		return nil
	}
	return (*T)(unsafe.Pointer(&b[0]))
}

// address of a byte slice of the arena, which stays where it is.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
