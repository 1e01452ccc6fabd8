package inside

import (
	"syscall"
	"unsafe"
)

// supervisor replaces PID 1 if there is no PID namespace that would end with it. It is a subreaper, so all its descendants
// remain its own, and it ends together with them. The tool can neither see, trace nor signal it: it is undumpable,
// outside the tool's Landlock domain, and ignores every signal that can be ignored.
type supervisor struct {
	tool   int           // the pid of the stage, then of the tool
	stream int           // to the stage
	turn   chan struct{} // held while children are listed: none is reaped meanwhile, so a pid means one process
	quiet  bool          // guarded by turn: the gateway no longer waits for the exit
	over   bool          // guarded by turn: the tool was reaped
}

// runSupervisor never returns.
func runSupervisor() {
	k := &supervisor{turn: make(chan struct{}, 1)}
	if prepareSupervisor() != 0 {
		syscall.Exit(1)
	}
	l, ok := receiveRequest() // by now the gateway has put this process under the bounds of the call
	// Undumpable only now: before, the gateway had to write to oom_score_adj, as in a helper's stand.
	if !ok || rawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0) != 0 || !k.startStage() || !k.forwardRequest(l) {
		killDescendants()
		syscall.Exit(1)
	}
	up := make(chan struct{})
	go k.handleCommands(up)
	<-up
	started := k.relayReports()
	status := k.awaitTool() // holds turn from here on
	killDescendants()
	if !started {
		syscall.Exit(1)
	}
	if !k.quiet {
		sendReport(Exited, uint32(status), 0)
	}
	syscall.Exit(0)
}

// prepareSupervisor makes this process a keeper.
func prepareSupervisor() syscall.Errno {
	const setSubreaper = 36 // PR_SET_CHILD_SUBREAPER
	syscall.CloseOnExec(Socket)
	if e := rawSyscall(syscall.SYS_PRCTL, setSubreaper, 1, 0); e != 0 {
		return e
	}
	return setSignalHandlers(func(sig uintptr, was uintptr) (uintptr, bool) {
		return sigIgn, sig != uintptr(syscall.SIGCHLD) // if it were ignored, the kernel would reap children
	})
}

// startStage starts the stage, in its own session.
func (k *supervisor) startStage() bool {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	k.stream = pair[0]
	k.tool, err = syscall.ForkExec("/proc/self/exe", []string{Stage}, &syscall.ProcAttr{Dir: "/", Env: syscall.Environ(),
		Files: []uintptr{0, 1, 2, Socket: uintptr(pair[1])}, Sys: &syscall.SysProcAttr{Setsid: true}})
	syscall.Close(pair[1])
	return err == nil
}

// forwardRequest passes the start request on to the stage and keeps no part of it.
func (k *supervisor) forwardRequest(l startRequest) bool {
	err := syscall.Sendmsg(k.stream, l.head[:], syscall.UnixRights(l.fds...), nil, 0)
	for _, fd := range l.fds {
		syscall.Close(fd)
	}
	return err == nil && writeAll(k.stream, l.steps)
}

// relayReports passes the stage's reports on until the stage's end of the stream closes: the stage has become the tool, or has
// ended. Started is sent before the tool runs, and the stage continues when the gateway has it.
func (k *supervisor) relayReports() (started bool) {
	defer syscall.Close(k.stream)
	listener := -1
	var b [ReportSize]byte
	for {
		n, fds := recvWithFDs(k.stream, b[:])
		if n < ReportSize { // a write this short is not split (unix(7))
			return started
		}
		switch {
		case b[0] == Listening && len(fds) == 1:
			listener = fds[0]
			continue
		case b[0] == Started:
			started = true
		}
		writeAll(Socket, b[:])
		if b[0] != Started {
			continue
		}
		writeAll(k.stream, b[:1])
		if listener >= 0 {
			allowSingleExec(listener, k.stream)
			listener = -1
		}
	}
}

// handleCommands carries out the commands of the gateway, and ends the tool if the gateway ends. See the other obey for why its
// thread must exist before the tool.
func (k *supervisor) handleCommands(up chan<- struct{}) {
	close(up)
	var b [1]byte
	for readFull(b[:]) && b[0] == Term {
		k.turn <- struct{}{}
		if !k.over {
			signalDescendants(syscall.Getpid(), syscall.SIGTERM)
		}
		<-k.turn
	}
	k.turn <- struct{}{}
	k.quiet = true
	if !k.over {
		syscall.Kill(k.tool, syscall.SIGKILL) // the other processes are killed when the tool has ended
	}
	<-k.turn
	select {} // keep exits
}

// awaitTool waits for orphans until the tool itself has ended, and returns with turn held.
func (k *supervisor) awaitTool() syscall.WaitStatus {
	for {
		pid, errno := peekDeadChild(pAll, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		k.turn <- struct{}{}
		var ws syscall.WaitStatus
		if errno != 0 {
			return ws // no child: impossible before the tool was reaped
		}
		if _, err := syscall.Wait4(pid, &ws, syscall.WNOHANG|syscall.WALL, nil); pid == k.tool && err == nil {
			k.over = true
			return ws
		}
		<-k.turn
	}
}

// killDescendants ends all descendants of this process, and returns when none is left. If a child dies, its own children become
// ours, since this process is a subreaper. As long as one is alive, none is reaped: dead processes count against
// RLIMIT_NPROC, so a process that forks faster than it is killed runs out of tasks, and no pid is reused.
func killDescendants() {
	for {
		alive := false
		for _, pid := range childPids(syscall.Getpid()) {
			if dead, e := peekDeadChild(pPid, pid, syscall.WNOHANG); dead == 0 && e == 0 {
				syscall.Kill(pid, syscall.SIGKILL)
				alive = true
			}
		}
		if !alive && reapDeadChildren() {
			return
		}
		nap := syscall.Timespec{Nsec: 200_000}
		syscall.Nanosleep(&nap, nil)
	}
}

// reapDeadChildren reaps dead children, and tells whether no child is left.
func reapDeadChildren() bool {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG|syscall.WALL, nil)
		if err == syscall.ECHILD {
			return true
		}
		if pid <= 0 && err != syscall.EINTR {
			return false
		}
	}
}

// signalDescendants sends a signal to all descendants of a process. The process must be this one, with turn held, or one that a
// descriptor holds. The descriptor of a child is opened before its parent is looked up, so the signal goes to a child
// of that parent even if the pid was reused.
func signalDescendants(parent int, sig syscall.Signal) {
	for _, pid := range childPids(parent) {
		fd, e := call6(sysPidfdOpen, uintptr(pid), 0, 0, 0, 0, 0)
		if e != 0 {
			continue
		}
		if parentOf(pid) == parent {
			rawSyscall(sysPidfdSendSignal, fd, uintptr(sig), 0)
			signalDescendants(pid, sig)
		}
		syscall.Close(int(fd))
	}
}

const (
	pAll = 0 // P_ALL
	pPid = 1 // P_PID
)

// peekDeadChild waits for a child that has ended, leaves it to be reaped, and returns its pid. With WNOHANG it returns 0 if none
// has ended.
func peekDeadChild(kind, id, options int) (pid int, e syscall.Errno) {
	var info [32]int32 // siginfo_t: si_pid follows three ints and, on 64-bit machines, four bytes of padding
	const pidAt = 4
	_, _, e = syscall.Syscall6(syscall.SYS_WAITID, uintptr(kind), uintptr(id), uintptr(unsafe.Pointer(&info)),
		uintptr(options|syscall.WEXITED|syscall.WNOWAIT|syscall.WALL), 0, 0)
	return int(info[pidAt]), e
}

// childPids lists the children of a process: those that each of its threads started (proc_tid_children(5)), or, if the
// kernel keeps no such list, every process with this parent.
func childPids(pid int) (pids []int) {
	tasks := "/proc/" + formatDecimal(pid) + "/task"
	for _, tid := range numbersIn(tasks) {
		text, ok := readProcFile(tasks + "/" + formatDecimal(tid) + "/children")
		if !ok {
			return childrenByScan(pid)
		}
		pids = append(pids, pidsIn(text)...)
	}
	return pids
}

// pidsIn reads numbers that are each followed by a space.
func pidsIn(text []byte) (pids []int) {
	from := 0
	for i, c := range text {
		if c != ' ' {
			continue
		}
		if n, ok := number10(string(text[from:i])); ok {
			pids = append(pids, n)
		}
		from = i + 1
	}
	return pids
}

func childrenByScan(parent int) (pids []int) {
	for _, pid := range numbersIn("/proc") {
		if parentOf(pid) == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

func parentOf(pid int) int {
	text, _ := readProcFile("/proc/" + formatDecimal(pid) + "/stat")
	return parentIn(text)
}

// parentIn reads the fourth field of stat (proc_pid_stat(5)), or returns 0 if it is missing. The second field is the
// name of the process in brackets, which may contain any character.
func parentIn(stat []byte) int {
	at := len(stat) - 1
	for at >= 0 && stat[at] != ')' {
		at--
	}
	from := at + len(") S ")
	for i := from; at >= 0 && i < len(stat); i++ {
		if stat[i] == ' ' {
			parent, _ := number10(string(stat[from:i]))
			return parent
		}
	}
	return 0
}

// numbersIn lists the entries of a directory that are numbers.
func numbersIn(dir string) (list []int) {
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	b := make([]byte, 8<<10)
	for {
		n, err := syscall.ReadDirent(fd, b)
		if n <= 0 || err != nil {
			return list
		}
		_, _, names := syscall.ParseDirent(b[:n], -1, nil)
		for _, name := range names {
			if n, ok := number10(name); ok {
				list = append(list, n)
			}
		}
	}
}

// readProcFile returns the content of a small kernel file.
func readProcFile(path string) ([]byte, bool) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer syscall.Close(fd)
	var text []byte
	for b := make([]byte, 4<<10); ; {
		n, err := syscall.Read(fd, b)
		if n <= 0 || err != nil {
			return text, n == 0
		}
		text = append(text, b[:n]...)
	}
}

// number10 and decimal replace strconv, which this package must not import.
func number10(s string) (n int, ok bool) {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' || n > 1<<30 {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, s != ""
}

func formatDecimal(n int) string {
	var b [20]byte
	i := len(b)
	for {
		i--
		b[i] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return string(b[i:])
		}
	}
}
