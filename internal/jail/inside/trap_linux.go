package inside

import "syscall"

// init is the trap. Every start of the program passes it: a system call where it is not PID 1.
func init() {
	if syscall.Getpid() != 1 || !named() {
		return
	}
	run()
}

// named tells whether argv[0] is Name. Package os would know, but is not initialised yet.
func named() bool {
	fd, err := syscall.Open("/proc/self/cmdline", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	var b [len(Name) + 1]byte
	n, _ := syscall.Read(fd, b[:])
	syscall.Close(fd)
	return n == len(b) && string(b[:len(Name)]) == Name && b[len(Name)] == 0
}

// run never returns. The goroutine that runs init functions is locked to the main thread.
func run() {
	steps, ok := receive()
	if !ok {
		syscall.Exit(1) // the gateway is gone, or is no gateway
	}
	up := make(chan struct{})
	go obey(up)
	for i, s := range steps {
		if s.Op == Exec {
			<-up
			report(Started, 0, 0) // before it is true: what the tool does first may be to end this cage
		}
		tool, errno := apply(s)
		if errno != 0 {
			report(Failed, uint32(i), uint32(errno))
			syscall.Exit(1)
		}
		if tool != 0 {
			report(Exited, uint32(reap(tool)), 0)
			syscall.Exit(0)
		}
	}
	report(Started, 0, 0)
	syscall.Exit(0)
}

// receive waits for a letter of the gateway, which may come much later, and reads the steps.
func receive() ([]Step, bool) {
	var head [4]byte
	n, ok := greet(head[:])
	if !ok || !fill(head[n:]) {
		return nil, false
	}
	r := reader{b: head[:]}
	size := r.number(4)
	if size > MaxBytes {
		return nil, false
	}
	b := make([]byte, size)
	if !fill(b) {
		return nil, false
	}
	return Decode(b)
}

// donated are the mounts and files that came with the letter, in the order in which it sent them.
var donated []int

// greet reads the first bytes of a letter and the descriptors that come with them: the tool's three
// streams take their places, the rest is donated.
func greet(head []byte) (int, bool) {
	oob := make([]byte, syscall.CmsgSpace(4*MaxDescriptors))
	for {
		n, size, flags, _, err := syscall.Recvmsg(Socket, head, oob, syscall.MSG_CMSG_CLOEXEC)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 || flags&syscall.MSG_CTRUNC != 0 {
			return 0, false
		}
		messages, err := syscall.ParseSocketControlMessage(oob[:size])
		if err != nil || len(messages) != 1 {
			return 0, false
		}
		fds, err := syscall.ParseUnixRights(&messages[0])
		if err != nil || len(fds) < 3 {
			return 0, false
		}
		for i, fd := range fds[:3] {
			if syscall.Dup3(fd, i, 0) != nil {
				return 0, false
			}
			syscall.Close(fd)
		}
		donated = fds[3:]
		return n, true
	}
}

// fill reads exactly b from the gateway.
func fill(b []byte) bool {
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

// report tells the gateway; when that is gone there is nobody to tell.
func report(kind byte, x, y uint32) {
	b := put32(put32([]byte{kind}, x), y)
	for {
		if _, err := syscall.Write(Socket, b); err != syscall.EINTR {
			return
		}
	}
}

// obey passes SIGTERM on and ends the cage with the gateway. Its thread must exist before the tool does,
// which may use up all tasks this cage can have: the Go runtime ends when it cannot start a thread it
// needs. It begins while the steps are applied, on the other core.
func obey(up chan<- struct{}) {
	close(up)
	var b [1]byte
	for fill(b[:]) {
		if b[0] == Term {
			syscall.Kill(-1, syscall.SIGTERM) // kill(2): every process of the namespace but PID 1
		}
	}
	syscall.Exit(1)
}

// reap waits for orphans until the tool itself has ended.
func reap(tool int) syscall.WaitStatus {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		if err == nil && pid == tool && (ws.Exited() || ws.Signaled()) {
			return ws
		}
		if err != nil && err != syscall.EINTR {
			syscall.Exit(1)
		}
	}
}
