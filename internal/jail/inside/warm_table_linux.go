package inside

import (
	"syscall"
	"unsafe"
)

// A table lists all system calls of a child of the helper, in order.
type syscallTable struct {
	rows     []syscallRow // in the arena
	steps    []int        // for each row, the step of the plan that it carries out
	progress *childProgress
	named    []argName // names of argument targets, for a reader

	arena *arena
	step  int
	full  bool // the arena or the table was too small
}

type argName struct {
	address uintptr
	text    string
}

const maxRows = 32

func newTable(a *arena) *syscallTable {
	t := &syscallTable{arena: a, progress: take1[childProgress](a)}
	b := a.allocBytes(maxRows * int(rowSize))
	if b == nil || t.progress == nil {
		return nil
	}
	t.rows = unsafe.Slice((*syscallRow)(unsafe.Pointer(&b[0])), maxRows)[:0]
	return t
}

// finishTable returns the table, or nil if it did not fit.
func (t *syscallTable) finishTable() *syscallTable {
	if t.full {
		return nil
	}
	return t
}

// waitForRow waits until a child is at a row, or returns an error if it has ended: some conditions must hold before a tool
// lives.
func (t *syscallTable) waitForRow(row, pid int) syscall.Errno {
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
		rawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) // no sleep: the timers of this process have slack
	}
	return 0
}

func (t *syscallTable) addRow(mode, trap uintptr, args ...uintptr) {
	if len(t.rows) == cap(t.rows) {
		t.full = true
		return
	}
	r := syscallRow{trap: trap, mode: mode}
	copy(r.args[:], args)
	t.rows, t.steps = append(t.rows, r), append(t.steps, t.step)
}

// copyArgument copies the target of an argument into the arena.
func (t *syscallTable) copyArgument(text string, b []byte) uintptr {
	to := t.arena.allocBytes(len(b))
	if to == nil {
		t.full = true
		return 0
	}
	copy(to, b)
	return t.nameAddress(text, sliceAddress(to))
}

func (t *syscallTable) nameAddress(text string, at uintptr) uintptr {
	t.named = append(t.named, argName{at, text})
	return at
}

func (t *syscallTable) copyWords(text string, w ...uint64) uintptr {
	b := make([]byte, 8*len(w))
	for i, n := range w {
		put64(b[8*i:], n)
	}
	return t.copyArgument(text, b)
}

// initTable returns the table of a call's PID 1: it keeps no state, waits at the leash, and passes SIGTERM on. Signals
// that the tool sends to it are blocked, or dropped because it is an init. The kernel reaps its children.
func (h *warmHelper) initTable(leash int) *syscallTable {
	t := newTable(h.arena)
	if t == nil {
		return nil
	}
	const everybody = ^uintptr(0)
	t.step = len(h.steps) - 1
	t.addRow(must, syscall.SYS_SETSID)
	t.addRow(must, syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGCHLD), t.copyWords("ignored", uint64(sigIgn), 0, 0, 0),
		0, 8)
	t.addRow(leave, syscall.SYS_KEYCTL, joinSession)
	t.addKeepOneFD(leash, 0)
	t.addDropCaps()
	wait := len(t.rows)
	t.addRow(some, syscall.SYS_READ, Socket, t.copyWords("byte", 0), 1)
	t.addRow(again, syscall.SYS_KILL, everybody, uintptr(syscall.SIGTERM), 0, 0, 0,
		t.nameAddress("read", uintptr(unsafe.Pointer(&t.rows[wait]))))
	return t.finishTable()
}

// The tool must not get the timer slack of the helper. It gets that of the first process (prctl(2)).
const setTimerSlack, usualSlack = 29, 50_000 // PR_SET_TIMERSLACK, ns

// toolTable returns the table of the tool's process up to its program. The content of its mailbox comes last.
func (h *warmHelper) toolTable(mail int) *syscallTable {
	t := newTable(h.arena)
	if t == nil {
		return nil
	}
	t.addRow(must, syscall.SYS_SETSID)
	t.addRow(must, syscall.SYS_PRCTL, setTimerSlack, usualSlack)
	for i, s := range h.steps {
		if stepTimes[s.Op&63] != last {
			continue
		}
		switch t.step = i; s.Op {
		case Unshare:
			t.addRow(must, syscall.SYS_UNSHARE, uintptr(s.N[0]))
		case Keyring:
			t.addRow(leave, syscall.SYS_KEYCTL, joinSession)
		case Caps:
			t.addDropCaps()
		case Restrict:
			t.addRow(must, sysRestrictSelf, rulesetFD, 0)
		case Narrow:
			t.addFilter(s.N)
		case Exec:
			t.addExecTool(s, h.mailbox, mail)
		}
	}
	return t.finishTable()
}

// addDropCaps empties the ambient, effective, permitted and inheritable sets.
func (t *syscallTable) addDropCaps() {
	t.addRow(must, syscall.SYS_PRCTL, prCapAmbient, ambientClearAll)
	t.addRow(must, syscall.SYS_CAPSET, t.copyWords("version", capsVersion3), t.copyWords("none", 0, 0, 0))
}

// addKeepOneFD leaves a child only one descriptor, at the number of the helper's own stream.
func (t *syscallTable) addKeepOneFD(fd int, flags uintptr) {
	t.addRow(must, syscall.SYS_DUP3, uintptr(fd), Socket, flags)
	t.addRow(must, sysCloseRange, Socket+1, 1<<32-1)
	t.addRow(must, sysCloseRange, 0, Socket-1)
}

func (t *syscallTable) addFilter(program []uint64) {
	const setSeccomp, modeFilter = 22, 2 // PR_SET_SECCOMP, SECCOMP_MODE_FILTER
	code := t.copyWords("program", program...)
	fprog := t.copyWords("filter", uint64(len(program)), uint64(code)) // struct sock_fprog
	t.addRow(must, syscall.SYS_PRCTL, setSeccomp, modeFilter, fprog)
}

// addExecTool adds the rows up to the execve of the tool. The tool's streams come with the message and become descriptors 0
// to 2, the lowest free numbers.
func (t *syscallTable) addExecTool(s Step, mailbox []byte, mail int) {
	const data, setMask = 2, 2 // RLIMIT_DATA, SIG_SETMASK
	base := t.nameAddress("mail", sliceAddress(mailbox))
	t.addKeepOneFD(mail, syscall.O_CLOEXEC)
	t.addRow(must, syscall.SYS_PRLIMIT64, 0, data, t.copyWords("memory", s.N[1], s.N[1]))
	part := t.copyWords("mailbox", uint64(base), uint64(len(mailbox))) // struct iovec
	room := t.arena.allocBytes(syscall.CmsgSpace(4 * 3))
	if room == nil {
		t.full = true
		return
	}
	message := t.copyWords("message", 0, 0, uint64(part), 1, uint64(sliceAddress(room)), uint64(len(room)), 0) // struct msghdr
	t.addRow(some, syscall.SYS_RECVMSG, Socket, message, 0)
	t.addRow(must, syscall.SYS_RT_SIGPROCMASK, setMask, t.copyWords("none", 0), 0, 8)
	t.addRow(must, syscall.SYS_EXECVE, t.copyArgument("file", append([]byte(s.S[0]), 0)),
		t.nameAddress("argv", base+argvAt), t.nameAddress("env", base+envAt))
}

// A Call is one row of a table, for a reader.
type Call struct {
	Step int // the step of the plan that it carries out
	Text string
}

// Tables returns the tables that the children of a helper would walk for a plan: the call's PID 1, and the tool's
// process. If the plan does not fit, both are nil.
func Tables(steps []Step) (init, tool []Call) {
	const leash, mail = 1 << 20, 1<<20 + 1 // unused descriptor numbers, to recognize these later
	a, e := newArena(1 << 20)              // more than a helper has
	if e != 0 {
		return nil, nil
	}
	defer syscall.Munmap(a.b)
	h := &warmHelper{steps: steps, arena: a, mailbox: a.allocBytes(MailSize)}
	i, t := h.initTable(leash), h.toolTable(mail)
	if i == nil || t == nil {
		return nil, nil
	}
	i.nameAddress("leash", leash)
	t.nameAddress("mailbox", mail)
	return i.describeCalls(), t.describeCalls()
}

// When returns when a helper carries out a step: "once", for each "call", or in the "tool"'s process; "" if never.
func When(op uint8) string {
	return [...]string{standing: "once", fresh: "call", last: "tool", needless: ""}[stepTimes[op&63]]
}

func (t *syscallTable) describeCalls() []Call {
	calls := make([]Call, len(t.rows))
	for i := range t.rows {
		calls[i] = Call{t.steps[i], t.describeRow(&t.rows[i])}
	}
	return calls
}

// describeRow describes a row: its mode unless that is must, the system call, the arguments without trailing zeros.
func (t *syscallTable) describeRow(r *syscallRow) string {
	args, text := r.args[:], [...]string{must: "", some: "some ", again: "again ", leave: "leave "}[r.mode]+
		callName(r.trap)
	if r.mode == again {
		args = args[:len(args)-1] // the row to continue at
	}
	for len(args) > 0 && args[len(args)-1] == 0 {
		args = args[:len(args)-1]
	}
	if r.trap == sysRestrictSelf { // whatever its descriptor
		text, args = text+" ruleset", args[:0]
	}
	for _, a := range args {
		text += " " + t.describeArg(a)
	}
	if r.mode == again {
		at := (r.args[len(r.args)-1] - uintptr(unsafe.Pointer(unsafe.SliceData(t.rows)))) / rowSize
		text += ", then " + callName(t.rows[at].trap)
	}
	return text
}

// describeArg returns the latest name of an argument's target, or the argument as a number.
func (t *syscallTable) describeArg(a uintptr) string {
	for i := len(t.named) - 1; i >= 0; i-- {
		if t.named[i].address == a {
			return t.named[i].text
		}
	}
	if n := int(a); n < 0 {
		return "-" + formatDecimal(-n)
	}
	return formatDecimal(int(a))
}

// callName returns the name of a system call of the tables, whatever its number on this architecture.
func callName(trap uintptr) string {
	switch trap {
	case syscall.SYS_CAPSET:
		return "capset"
	case sysCloseRange:
		return "close_range"
	case syscall.SYS_DUP3:
		return "dup3"
	case syscall.SYS_EXECVE:
		return "execve"
	case syscall.SYS_KEYCTL:
		return "keyctl"
	case syscall.SYS_KILL:
		return "kill"
	case sysRestrictSelf:
		return "landlock_restrict_self"
	case syscall.SYS_PRCTL:
		return "prctl"
	case syscall.SYS_PRLIMIT64:
		return "prlimit64"
	case syscall.SYS_READ:
		return "read"
	case syscall.SYS_RECVMSG:
		return "recvmsg"
	case syscall.SYS_RT_SIGACTION:
		return "rt_sigaction"
	case syscall.SYS_RT_SIGPROCMASK:
		return "rt_sigprocmask"
	case syscall.SYS_SETSID:
		return "setsid"
	case syscall.SYS_UNSHARE:
		return "unshare"
	}
	return "call " + formatDecimal(int(trap))
}
