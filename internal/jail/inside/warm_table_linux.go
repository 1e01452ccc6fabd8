package inside

import (
	"syscall"
	"unsafe"
)

// A table lists all system calls of a child of the helper, in order.
type table struct {
	rows     []row // in the arena
	steps    []int // for each row, the step of the plan that it carries out
	progress *progress
	named    []name // names of argument targets, for a reader

	arena *arena
	step  int
	full  bool // the arena or the table was too small
}

type name struct {
	address uintptr
	text    string
}

const maxRows = 32

func newTable(a *arena) *table {
	t := &table{arena: a, progress: take1[progress](a)}
	b := a.take(maxRows * int(rowSize))
	if b == nil || t.progress == nil {
		return nil
	}
	t.rows = unsafe.Slice((*row)(unsafe.Pointer(&b[0])), maxRows)[:0]
	return t
}

// done returns the table, or nil if it did not fit.
func (t *table) done() *table {
	if t.full {
		return nil
	}
	return t
}

// reached waits until a child is at a row, or returns an error if it has ended: some conditions must hold before a tool
// lives.
func (t *table) reached(row, pid int) syscall.Errno {
	at := uintptr(unsafe.Pointer(&t.rows[row]))
	for n := 1; t.progress.at != at; n++ {
		if t.progress.result != 0 {
			return syscall.Errno(-t.progress.result)
		}
		if n%256 == 0 {
			if dead, _ := syscall.Wait4(pid, nil, syscall.WNOHANG|syscall.WALL, nil); dead == pid {
				return syscall.ESRCH
			}
		}
		call(syscall.SYS_SCHED_YIELD, 0, 0, 0) // no sleep: the timers of this process have slack
	}
	return 0
}

func (t *table) add(mode, trap uintptr, args ...uintptr) {
	if len(t.rows) == cap(t.rows) {
		t.full = true
		return
	}
	r := row{trap: trap, mode: mode}
	copy(r.args[:], args)
	t.rows, t.steps = append(t.rows, r), append(t.steps, t.step)
}

// keep copies the target of an argument into the arena.
func (t *table) keep(text string, b []byte) uintptr {
	to := t.arena.take(len(b))
	if to == nil {
		t.full = true
		return 0
	}
	copy(to, b)
	return t.point(text, address(to))
}

func (t *table) point(text string, at uintptr) uintptr {
	t.named = append(t.named, name{at, text})
	return at
}

func (t *table) words(text string, w ...uint64) uintptr {
	b := make([]byte, 8*len(w))
	for i, n := range w {
		put64(b[8*i:], n)
	}
	return t.keep(text, b)
}

// initTable returns the table of a call's PID 1: it keeps no state, waits at the leash, and passes SIGTERM on. Signals
// that the tool sends to it are blocked, or dropped because it is an init. The kernel reaps its children.
func (h *helper) initTable(leash int) *table {
	t := newTable(h.arena)
	if t == nil {
		return nil
	}
	const everybody = ^uintptr(0)
	t.step = len(h.steps) - 1
	t.add(must, syscall.SYS_SETSID)
	t.add(must, syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGCHLD), t.words("ignored", uint64(sigIgn), 0, 0, 0), 0, 8)
	t.add(leave, syscall.SYS_KEYCTL, joinSession)
	t.descriptors(leash, 0)
	t.powerless()
	wait := len(t.rows)
	t.add(some, syscall.SYS_READ, Socket, t.words("byte", 0), 1)
	t.add(again, syscall.SYS_KILL, everybody, uintptr(syscall.SIGTERM), 0, 0, 0, t.point("read", uintptr(unsafe.Pointer(&t.rows[wait]))))
	return t.done()
}

// The tool must not get the timer slack of the helper. It gets that of the first process (prctl(2)).
const setTimerSlack, usualSlack = 29, 50_000 // PR_SET_TIMERSLACK, ns

// toolTable returns the table of the tool's process up to its program. The content of its mailbox comes last.
func (h *helper) toolTable(mail int) *table {
	t := newTable(h.arena)
	if t == nil {
		return nil
	}
	t.add(must, syscall.SYS_SETSID)
	t.add(must, syscall.SYS_PRCTL, setTimerSlack, usualSlack)
	for i, s := range h.steps {
		if when[s.Op&63] != last {
			continue
		}
		switch t.step = i; s.Op {
		case Unshare:
			t.add(must, syscall.SYS_UNSHARE, uintptr(s.N[0]))
		case Keyring:
			t.add(leave, syscall.SYS_KEYCTL, joinSession)
		case Caps:
			t.powerless()
		case Restrict:
			t.add(must, sysRestrictSelf, rules, 0)
		case Narrow:
			t.filter(s.N)
		case Exec:
			t.program(s, h.mailbox, mail)
		}
	}
	return t.done()
}

// powerless empties the ambient, effective, permitted and inheritable sets.
func (t *table) powerless() {
	t.add(must, syscall.SYS_PRCTL, prCapAmbient, ambientClearAll)
	t.add(must, syscall.SYS_CAPSET, t.words("version", capsVersion3), t.words("none", 0, 0, 0))
}

// descriptors leaves a child only one descriptor, at the number of the helper's own stream.
func (t *table) descriptors(fd int, flags uintptr) {
	t.add(must, syscall.SYS_DUP3, uintptr(fd), Socket, flags)
	t.add(must, sysCloseRange, Socket+1, 1<<32-1)
	t.add(must, sysCloseRange, 0, Socket-1)
}

func (t *table) filter(program []uint64) {
	const setSeccomp, modeFilter = 22, 2 // PR_SET_SECCOMP, SECCOMP_MODE_FILTER
	code := t.words("program", program...)
	fprog := t.words("filter", uint64(len(program)), uint64(code)) // struct sock_fprog
	t.add(must, syscall.SYS_PRCTL, setSeccomp, modeFilter, fprog)
}

// program adds the rows up to the execve of the tool. The tool's streams come with the message and become descriptors 0
// to 2, the lowest free numbers.
func (t *table) program(s Step, mailbox []byte, mail int) {
	const data, setMask = 2, 2 // RLIMIT_DATA, SIG_SETMASK
	base := t.point("mail", address(mailbox))
	t.descriptors(mail, syscall.O_CLOEXEC)
	t.add(must, syscall.SYS_PRLIMIT64, 0, data, t.words("memory", s.N[1], s.N[1]))
	part := t.words("mailbox", uint64(base), uint64(len(mailbox))) // struct iovec
	room := t.arena.take(syscall.CmsgSpace(4 * 3))
	if room == nil {
		t.full = true
		return
	}
	message := t.words("message", 0, 0, uint64(part), 1, uint64(address(room)), uint64(len(room)), 0) // struct msghdr
	t.add(some, syscall.SYS_RECVMSG, Socket, message, 0)
	t.add(must, syscall.SYS_RT_SIGPROCMASK, setMask, t.words("none", 0), 0, 8)
	t.add(must, syscall.SYS_EXECVE, t.keep("file", append([]byte(s.S[0]), 0)), t.point("argv", base+argvAt), t.point("env", base+envAt))
}
