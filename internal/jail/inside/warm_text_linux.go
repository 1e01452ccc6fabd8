package inside

import (
	"syscall"
	"unsafe"
)

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
