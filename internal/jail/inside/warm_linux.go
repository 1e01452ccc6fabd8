package inside

import (
	"runtime"
	"syscall"
)

// perCall are the namespaces that are made for each call. The user and network namespaces are the helper's: a tool can
// change neither, since it has no capability there and can make no socket, and all its processes are gone before the
// next call. The tool's process makes its own cgroup namespace, since the root of that is the group of the process that
// makes it.
const perCall = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS

// A helper is the state of a warm helper.
type helper struct {
	steps   []Step
	ns      [4]int          // its own mount, pid, uts and ipc namespaces, to which it returns between calls
	rules   map[int]uintptr // by step: descriptors of rules whose paths exist for all calls
	arena   *arena
	mailbox []byte
}

// serve is the main function of a warm helper. It never returns. Only its thread enters a call's namespaces. Other
// threads of the Go runtime are started by a thread that does not, since a thread whose children are born in another
// PID namespace cannot start any (clone(2), EINVAL).
func serve() {
	runtime.LockOSThread()
	h := &helper{}
	if call(sysCloseRange, Socket+1, 1<<32-1, 0) != 0 || handle(toDefault) != 0 || !h.stand() {
		syscall.Exit(1)
	}
	mark := h.arena.used
	for {
		leash, mail, ok := armed()
		if !ok {
			syscall.Exit(0) // the gateway no longer needs it, or is gone
		}
		if !h.call(leash, mail) {
			syscall.Exit(1)
		}
		h.arena.reset(mark)
		clear(h.mailbox)
	}
}

// stand takes the start request, carries out the steps that are done once, and answers.
func (h *helper) stand() bool {
	l, ok := take()
	// Undumpable only now: until the start request comes, the gateway of an ordinary user writes to this process's
	// oom_score_adj, which belongs to root as soon as the process is undumpable (proc_pid(5)).
	if !ok || call(syscall.SYS_PRCTL, prSetDumpable, 0, 0) != 0 || len(l.steps) < DigestSize || !settle(l.fds) {
		return false
	}
	digest := l.steps[:DigestSize]
	if h.steps, ok = Decode(l.steps[DigestSize:]); !ok || !Warmable(h.steps) {
		return false
	}
	for i, name := range [...]string{"mnt", "pid", "uts", "ipc"} { // before the pivot, while /proc exists
		fd, err := syscall.Open("/proc/thread-self/ns/"+name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return false
		}
		h.ns[i] = fd
	}
	if syscall.Unshare(syscall.CLONE_FS) != nil { // a thread that shares its root cannot change the mount namespace (setns(2))
		return false
	}
	var e syscall.Errno
	if h.arena, e = newArena(512 << 10); e != 0 {
		return false
	}
	h.mailbox = h.arena.take(MailSize)
	if !h.take(standing) {
		return false
	}
	for _, s := range h.steps {
		if s.Op == Copy {
			// attached mounts are closed already, and their numbers may mean other files by now
			syscall.Close(donated[s.N[0]])
		}
	}
	if !h.openRules() {
		return false
	}
	base := uint64(address(h.mailbox))
	report(Ready, uint32(base), uint32(base>>32))
	return put(Socket, digest)
}

// take carries out the steps of one time, and reports the first that fails.
func (h *helper) take(time uint8) bool {
	for i, s := range h.steps {
		if when[s.Op&63] != time {
			continue
		}
		errno := syscall.Errno(0)
		if fd, stands := h.rules[i]; stands {
			errno = allow(fd, s.N[0])
		} else {
			_, errno = apply(s)
		}
		if errno != 0 {
			report(Failed, uint32(i), uint32(errno))
			return false
		}
	}
	return true
}

// openRules opens the paths of rules, except those that are made anew for each call.
func (h *helper) openRules() bool {
	made := map[string]bool{}
	for _, s := range h.steps {
		if s.Op == Fresh {
			made["/"+s.S[0]] = true
		}
	}
	h.rules = map[int]uintptr{}
	for i, s := range h.steps {
		if s.Op != Rule || made[s.S[0]] {
			continue
		}
		fd, errno := open(s.S[0])
		if errno != 0 {
			report(Failed, uint32(i), uint32(errno))
			return false
		}
		h.rules[i] = fd
	}
	return true
}

// armed waits for the leash and the mailbox of the next call.
func armed() (leash, mail int, ok bool) {
	var b [1]byte
	n, fds := recv(Socket, b[:])
	if n != 1 || b[0] != Arm || len(fds) != 2 {
		return 0, 0, false
	}
	return fds[0], fds[1], true
}

// call builds one cage, waits for its end and takes it apart. It returns false if the helper must not serve another
// call.
func (h *helper) call(leash, mail int) bool {
	if !h.enter() {
		return false
	}
	init := h.initTable(leash)
	first, errno := h.spawn(init) // it gets ready meanwhile
	if errno != 0 {
		return h.unable(errno)
	}
	if !h.take(fresh) {
		return false
	}
	tool := h.toolTable(mail)
	if errno := init.reached(len(init.rows)-2, first); errno != 0 {
		return h.unable(errno)
	}
	report(Parked, 0, 0) // sent before there is a tool: without this report there was none
	pid, errno := h.spawn(tool)
	if errno != 0 {
		return h.unable(errno)
	}
	syscall.Close(leash)
	syscall.Close(mail)
	if rules != 0 {
		syscall.Close(int(rules))
		rules = 0
	}
	var status syscall.WaitStatus
	var used syscall.Rusage
	if waitUsage(pid, &status, &used) != 0 {
		return false
	}
	switch at, errno, failed := tool.progress.ended(tool.rows, status); {
	case failed:
		report(Failed, uint32(tool.steps[at]), uint32(errno))
		return false
	case at < len(tool.rows)-1:
		report(Unused, 0, 0)
	default:
		report(Exited, uint32(status), micros(used))
	}
	// If the gateway closes the leash, PID 1 ends, and before it all other processes in its namespace
	// (pid_namespaces(7)). Some of these may be this process's own children (clone(2), CLONE_PARENT), which no other
	// process would reap.
	for wait(-1, &status) == 0 {
	}
	if !h.leave() {
		return false
	}
	report(Gone, 0, 0)
	return true
}

// unable reports that no tool could be started.
func (h *helper) unable(errno syscall.Errno) bool {
	report(Failed, uint32(len(h.steps)-1), uint32(errno))
	return false
}

// spawn starts a child at the first row of a table.
func (h *helper) spawn(t *table) (pid int, errno syscall.Errno) {
	if t == nil {
		return 0, syscall.ENOMEM
	}
	return spawn(h.arena, t.rows, t.progress)
}

// enter makes the namespaces of a call, as copies of the helper's own.
func (h *helper) enter() bool {
	err := syscall.Unshare(perCall)
	if err != nil {
		report(Failed, 0, uint32(number(err)))
	}
	return err == nil
}

// leave returns from these namespaces; their mounts go away with them.
func (h *helper) leave() bool {
	for _, fd := range h.ns {
		if call(sysSetns, uintptr(fd), 0, 0) != 0 {
			return false
		}
	}
	return true
}

// wait reaps a child that has ended; -1 means any child.
func wait(pid int, status *syscall.WaitStatus) syscall.Errno { return waitUsage(pid, status, nil) }

// micros returns the processor time of a process and of those it waited for, in microseconds, at most one hour.
func micros(r syscall.Rusage) uint32 {
	n := (r.Utime.Nano() + r.Stime.Nano()) / 1000
	return uint32(min(n, 3600e6))
}

func waitUsage(pid int, status *syscall.WaitStatus, used *syscall.Rusage) syscall.Errno {
	for {
		_, err := syscall.Wait4(pid, status, syscall.WALL, used)
		if err != syscall.EINTR {
			return number(err)
		}
	}
}
