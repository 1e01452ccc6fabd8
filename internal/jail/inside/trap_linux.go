package inside

import "syscall"

// init runs at every start of the program. It reads argv[0] and, if that is a name of this package, never returns.
func init() {
	switch name := argv0(); {
	case name == Name && syscall.Getpid() == 1:
		runInit()
	case name == Warm && syscall.Getpid() == 1:
		runHelper()
	case name == Keeper:
		runSupervisor()
	case name == Stage:
		runStage()
	}
}

// argv0 returns the name with which this process was started, cut to the length that matters. Package os has it, but is
// not initialised yet.
func argv0() string {
	fd, err := syscall.Open("/proc/self/cmdline", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	var b [len(Keeper) + 1]byte // the longest
	n, _ := syscall.Read(fd, b[:])
	syscall.Close(fd)
	for i := range max(n, 0) {
		if b[i] == 0 {
			return string(b[:i])
		}
	}
	return ""
}

// runInit never returns. The goroutine that runs init functions is locked to the main thread.
func runInit() {
	steps, ok := receiveSteps()
	if !ok {
		syscall.Exit(1) // the gateway is gone, or the peer is another program
	}
	up := make(chan struct{})
	go obeyGateway(up)
	for i, s := range steps {
		if s.Op == Exec {
			<-up
			sendReport(Started, 0, 0) // sent before the tool runs: the first action of the tool may be to end this cage
		}
		tool, errno := applyStep(s)
		if errno != 0 {
			sendReport(Failed, uint32(i), uint32(errno))
			syscall.Exit(1)
		}
		if tool != 0 {
			sendReport(Exited, uint32(waitForTool(tool, s.Op == Exec && len(s.N) > 2 && s.N[2] == 1)), 0)
			syscall.Exit(0)
		}
	}
	sendReport(Started, 0, 0)
	syscall.Exit(0)
}

// A letter is the start request of the gateway: the tool's three streams, other donated descriptors, and the steps.
type startRequest struct {
	head  [4]byte // the length of steps
	fds   []int
	steps []byte
}

// receiveSteps waits for a start request, which may come much later, and reads the steps.
func receiveSteps() ([]Step, bool) {
	l, ok := receiveRequest()
	if !ok || !installStreams(l.fds) {
		return nil, false
	}
	return Decode(l.steps)
}

func receiveRequest() (l startRequest, ok bool) {
	n, fds, ok := readRequestHead(l.head[:])
	if !ok || !readFull(l.head[n:]) {
		return l, false
	}
	r := planReader{b: l.head[:]}
	size := r.readUint(4)
	if size > MaxBytes {
		return l, false
	}
	l.fds, l.steps = fds, make([]byte, size)
	return l, readFull(l.steps)
}

// installStreams puts the tool's streams in place and keeps the other descriptors as donated.
func installStreams(fds []int) bool {
	for i, fd := range fds[:3] {
		if syscall.Dup3(fd, i, 0) != nil {
			return false
		}
		syscall.Close(fd)
	}
	donatedFDs = fds[3:]
	return true
}

// donatedFDs are mounts that the gateway made or files that it opened, in the order of sending.
var donatedFDs []int

func donatedFD(n uint64) (int, syscall.Errno) {
	if n >= uint64(len(donatedFDs)) {
		return 0, syscall.EBADMSG
	}
	return donatedFDs[n], 0
}

// readRequestHead reads the first bytes of a start request and the descriptors that come with them.
func readRequestHead(head []byte) (n int, fds []int, ok bool) {
	n, fds = recvWithFDs(Socket, head)
	return n, fds, n > 0 && len(fds) >= 3
}

// recvWithFDs reads once from a socket, with the descriptors that come along. n is 0 at the end of the stream and after an
// error.
func recvWithFDs(socket int, b []byte) (n int, fds []int) {
	oob := make([]byte, syscall.CmsgSpace(4*MaxDescriptors))
	for {
		n, size, flags, _, err := syscall.Recvmsg(socket, b, oob, syscall.MSG_CMSG_CLOEXEC)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 || flags&syscall.MSG_CTRUNC != 0 {
			return 0, nil
		}
		if size == 0 {
			return n, nil
		}
		messages, err := syscall.ParseSocketControlMessage(oob[:size])
		if err != nil || len(messages) != 1 {
			return 0, nil
		}
		if fds, err = syscall.ParseUnixRights(&messages[0]); err != nil {
			return 0, nil
		}
		return n, fds
	}
}

// readFull reads exactly b from the gateway.
func readFull(b []byte) bool {
	for len(b) > 0 {
		n, err := syscall.Read(Socket, b)
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return false
		}
		b = b[n:]
	}
	return true
}

// sendReport sends a report to the gateway, or to a keeper; if that is gone, the error is ignored.
func sendReport(kind byte, x, y uint32) { writeAll(Socket, put32(put32([]byte{kind}, x), y)) }

// writeAll writes all of b.
func writeAll(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := syscall.Write(fd, b)
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return false
		}
		b = b[n:]
	}
	return true
}

// obeyGateway passes SIGTERM on and ends the cage if the gateway ends. Its thread must exist before the tool, which may use up
// all tasks of this cage: the Go runtime aborts if it cannot start a thread that it needs. It starts while the steps
// are applied, on the other core.
func obeyGateway(up chan<- struct{}) {
	close(up)
	var b [1]byte
	for readFull(b[:]) {
		if b[0] == Term {
			syscall.Kill(-1, syscall.SIGTERM) // kill(2): every process of the namespace but PID 1
		}
	}
	syscall.Exit(1)
}

// waitForTool waits for orphans until the tool itself has ended. If a tool with a terminal stops, reap continues it, since no
// shell outside could (for example, an agent stops itself on ^Z) and it would hang for ever.
func waitForTool(tool int, terminal bool) syscall.WaitStatus {
	options := 0
	if terminal {
		options = syscall.WUNTRACED
	}
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, options, nil)
		if err == nil && pid == tool && ws.Stopped() {
			syscall.Kill(tool, syscall.SIGCONT)
		}
		if err == nil && pid == tool && (ws.Exited() || ws.Signaled()) {
			return ws
		}
		if err != nil && err != syscall.EINTR {
			syscall.Exit(1)
		}
	}
}
