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
type warmHelper struct {
	steps   []Step
	ns      [4]int          // its own mount, pid, uts and ipc namespaces, to which it returns between calls
	rules   map[int]uintptr // by step: descriptors of rules whose paths exist for all calls
	arena   *arena
	mailbox []byte
}

// runHelper is the main function of a warm helper. It never returns. Only its thread enters a call's namespaces. Other
// threads of the Go runtime are started by a thread that does not, since a thread whose children are born in another
// PID namespace cannot start any (clone(2), EINVAL).
func runHelper() {
	runtime.LockOSThread()
	h := &warmHelper{}
	if rawSyscall(sysCloseRange, Socket+1, 1<<32-1, 0) != 0 || setSignalHandlers(toDefault) != 0 || !h.prepareOnce() {
		syscall.Exit(1)
	}
	mark := h.arena.used
	for {
		leash, mail, ok := waitForCall()
		if !ok {
			syscall.Exit(0) // the gateway no longer needs it, or is gone
		}
		if !h.serveCall(leash, mail) {
			syscall.Exit(1)
		}
		h.arena.freeAfter(mark)
		clear(h.mailbox)
	}
}

// prepareOnce takes the start request, carries out the steps that are done once, and answers.
func (h *warmHelper) prepareOnce() bool {
	l, ok := receiveRequest()
	// Undumpable only now: until the start request comes, the gateway of an ordinary user writes to this process's
	// oom_score_adj, which belongs to root as soon as the process is undumpable (proc_pid(5)).
	if !ok || rawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0) != 0 || len(l.steps) < DigestSize ||
		!installStreams(l.fds) {
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
	h.mailbox = h.arena.allocBytes(MailSize)
	if !h.applySteps(standing) {
		return false
	}
	for _, s := range h.steps {
		if s.Op == Copy {
			// attached mounts are closed already, and their numbers may mean other files by now
			syscall.Close(donatedFDs[s.N[0]])
		}
	}
	if !h.openRules() {
		return false
	}
	base := uint64(sliceAddress(h.mailbox))
	sendReport(Ready, uint32(base), uint32(base>>32))
	return writeAll(Socket, digest)
}

// applySteps carries out the steps of one time, and reports the first that fails.
func (h *warmHelper) applySteps(time uint8) bool {
	for i, s := range h.steps {
		if stepTimes[s.Op&63] != time {
			continue
		}
		errno := syscall.Errno(0)
		if fd, stands := h.rules[i]; stands {
			errno = addRuleForFD(fd, s.N[0])
		} else {
			_, errno = applyStep(s)
		}
		if errno != 0 {
			sendReport(Failed, uint32(i), uint32(errno))
			return false
		}
	}
	return true
}

// openRules opens the paths of rules, except those that are made anew for each call.
func (h *warmHelper) openRules() bool {
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
		fd, errno := openPath(s.S[0])
		if errno != 0 {
			sendReport(Failed, uint32(i), uint32(errno))
			return false
		}
		h.rules[i] = fd
	}
	return true
}

// waitForCall waits for the leash and the mailbox of the next call.
func waitForCall() (leash, mail int, ok bool) {
	var b [1]byte
	n, fds := recvWithFDs(Socket, b[:])
	if n != 1 || b[0] != Arm || len(fds) != 2 {
		return 0, 0, false
	}
	return fds[0], fds[1], true
}

// serveCall builds one cage, waits for its end and takes it apart. It returns false if the helper must not serve another
// call.
func (h *warmHelper) serveCall(leash, mail int) bool {
	if !h.enterNamespaces() {
		return false
	}
	init := h.initTable(leash)
	first, errno := h.startChild(init) // it gets ready meanwhile
	if errno != 0 {
		return h.reportStartFailure(errno)
	}
	if !h.applySteps(fresh) {
		return false
	}
	tool := h.toolTable(mail)
	if errno := init.waitForRow(len(init.rows)-2, first); errno != 0 {
		return h.reportStartFailure(errno)
	}
	sendReport(Parked, 0, 0) // sent before there is a tool: without this report there was none
	pid, errno := h.startChild(tool)
	if errno != 0 {
		return h.reportStartFailure(errno)
	}
	syscall.Close(leash)
	syscall.Close(mail)
	if rulesetFD != 0 {
		syscall.Close(int(rulesetFD))
		rulesetFD = 0
	}
	var status syscall.WaitStatus
	var used syscall.Rusage
	if waitUsage(pid, &status, &used) != 0 {
		return false
	}
	switch at, errno, failed := tool.progress.endingRow(tool.rows, status); {
	case failed:
		sendReport(Failed, uint32(tool.steps[at]), uint32(errno))
		return false
	case at < len(tool.rows)-1:
		sendReport(Unused, 0, 0)
	default:
		sendReport(Exited, uint32(status), cpuMicros(used))
	}
	// If the gateway closes the leash, PID 1 ends, and before it all other processes in its namespace
	// (pid_namespaces(7)). Some of these may be this process's own children (clone(2), CLONE_PARENT), which no other
	// process would reap.
	for waitChild(-1, &status) == 0 {
	}
	if !h.leaveNamespaces() {
		return false
	}
	sendReport(Gone, 0, 0)
	return true
}

// reportStartFailure reports that no tool could be started.
func (h *warmHelper) reportStartFailure(errno syscall.Errno) bool {
	sendReport(Failed, uint32(len(h.steps)-1), uint32(errno))
	return false
}

// startChild starts a child at the first row of a table.
func (h *warmHelper) startChild(t *syscallTable) (pid int, errno syscall.Errno) {
	if t == nil {
		return 0, syscall.ENOMEM
	}
	return spawnChild(h.arena, t.rows, t.progress)
}

// enterNamespaces makes the namespaces of a call, as copies of the helper's own.
func (h *warmHelper) enterNamespaces() bool {
	err := syscall.Unshare(perCall)
	if err != nil {
		sendReport(Failed, 0, uint32(errnoOf(err)))
	}
	return err == nil
}

// leaveNamespaces returns from these namespaces; their mounts go away with them.
func (h *warmHelper) leaveNamespaces() bool {
	for _, fd := range h.ns {
		if rawSyscall(sysSetns, uintptr(fd), 0, 0) != 0 {
			return false
		}
	}
	return true
}

// waitChild reaps a child that has ended; -1 means any child.
func waitChild(pid int, status *syscall.WaitStatus) syscall.Errno { return waitUsage(pid, status, nil) }

// cpuMicros returns the processor time of a process and of those it waited for, in microseconds, at most one hour.
func cpuMicros(r syscall.Rusage) uint32 {
	n := (r.Utime.Nano() + r.Stime.Nano()) / 1000
	return uint32(min(n, 3600e6))
}

func waitUsage(pid int, status *syscall.WaitStatus, used *syscall.Rusage) syscall.Errno {
	for {
		_, err := syscall.Wait4(pid, status, syscall.WALL, used)
		if err != syscall.EINTR {
			return errnoOf(err)
		}
	}
}
