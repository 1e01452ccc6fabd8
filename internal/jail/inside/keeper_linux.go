package inside

import "syscall"

// keeper stands in for PID 1 where there is no namespace that could end with it. It is a subreaper, so
// whatever descends from it stays its own, and it ends with all of that. The tool can neither see, trace nor
// signal it: it is undumpable, outside the tool's Landlock domain, and heeds no signal that can be ignored.
type keeper struct {
	tool   int           // the pid of the stage, then of the tool
	stream int           // to the stage
	turn   chan struct{} // held by who looks for children: while it is, none is reaped, so that a pid means one process
	quiet  bool          // guarded by turn: the gateway waits for no exit any more
	over   bool          // guarded by turn: the tool was reaped
}

// keep never returns.
func keep() {
	k := &keeper{turn: make(chan struct{}, 1)}
	if guard() != 0 {
		syscall.Exit(1)
	}
	l, ok := take() // by now the gateway has put this process under what bounds the call
	// Undumpable only now: the gateway could not write to oom_score_adj before, as in a helper's stand.
	if !ok || call(syscall.SYS_PRCTL, prSetDumpable, 0, 0) != 0 || !k.raise() || !k.forward(l) {
		sweep()
		syscall.Exit(1)
	}
	up := make(chan struct{})
	go k.obey(up)
	<-up
	started := k.relay()
	status := k.reap() // holds the turn from here on
	sweep()
	if !started {
		syscall.Exit(1)
	}
	if !k.quiet {
		report(Exited, uint32(status), 0)
	}
	syscall.Exit(0)
}

// guard makes this process a keeper.
func guard() syscall.Errno {
	const setSubreaper = 36 // PR_SET_CHILD_SUBREAPER
	syscall.CloseOnExec(Socket)
	if e := call(syscall.SYS_PRCTL, setSubreaper, 1, 0); e != 0 {
		return e
	}
	return handle(func(sig uintptr, was uintptr) (uintptr, bool) {
		return sigIgn, sig != uintptr(syscall.SIGCHLD) // ignored, that would have children reaped by the kernel
	})
}

// raise starts the stage, in a session of its own.
func (k *keeper) raise() bool {
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

// forward passes the letter on to the stage and keeps none of it.
func (k *keeper) forward(l letter) bool {
	err := syscall.Sendmsg(k.stream, l.head[:], syscall.UnixRights(l.fds...), nil, 0)
	for _, fd := range l.fds {
		syscall.Close(fd)
	}
	return err == nil && put(k.stream, l.steps)
}

// relay passes the stage's reports on until its end of the stream closes, as it does when the stage becomes
// the tool or ends. Started comes before it is true, and the stage goes on when the gateway has it.
func (k *keeper) relay() (started bool) {
	defer syscall.Close(k.stream)
	listener := -1
	var b [ReportSize]byte
	for {
		n, fds := recv(k.stream, b[:])
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
		put(Socket, b[:])
		if b[0] != Started {
			continue
		}
		put(k.stream, b[:1])
		if listener >= 0 {
			once(listener, k.stream)
			listener = -1
		}
	}
}

// obey does what the gateway says, and ends the tool with it. See the other obey for why its thread is
// there before the tool.
func (k *keeper) obey(up chan<- struct{}) {
	close(up)
	var b [1]byte
	for fill(b[:]) && b[0] == Term {
		k.turn <- struct{}{}
		if !k.over {
			urge(syscall.Getpid(), syscall.SIGTERM)
		}
		<-k.turn
	}
	k.turn <- struct{}{}
	k.quiet = true
	if !k.over {
		syscall.Kill(k.tool, syscall.SIGKILL) // the rest follows when the tool has ended
	}
	<-k.turn
	select {} // keep exits
}

// reap waits for orphans until the tool itself has ended, and returns with the turn.
func (k *keeper) reap() syscall.WaitStatus {
	for {
		pid, errno := died(pAll, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		k.turn <- struct{}{}
		var ws syscall.WaitStatus
		if errno != 0 {
			return ws // no child at all: impossible while the tool was not reaped
		}
		if _, err := syscall.Wait4(pid, &ws, syscall.WNOHANG|syscall.WALL, nil); pid == k.tool && err == nil {
			k.over = true
			return ws
		}
		<-k.turn
	}
}
