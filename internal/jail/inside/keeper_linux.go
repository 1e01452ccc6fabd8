package inside

import "syscall"

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
