package inside

import (
	"syscall"
	"unsafe"
)

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
