package battery

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func formatInt(n int) string { return strconv.Itoa(n) }

// processProbes are attempts on processes outside, by their pids there, and on PID 1 of the cage. For signals to all
// processes at once (trap 3) the test looks from outside: the victim must be there and unchanged.
func processProbes() []Probe {
	const pid1 = 1
	of := func(name string, try func(pid int) error) Probe {
		return Probe{Name: "process/" + name, try: func(s *Scene) verdict { return s.tryOnOutsiders(try) }}
	}
	init := func(name string, try func(pid int) error) Probe {
		return Probe{Name: "process/init-" + name, Full: "there is no PID 1 of its own", try: func(*Scene) verdict {
			return errorVerdict(try(pid1), name+" of PID 1", syscall.EBADF)
		}}
	}
	return []Probe{
		{Name: "process/list", try: listProcesses},
		of("signal-0", func(pid int) error { return syscall.Kill(pid, 0) }),
		of("signal", func(pid int) error { return syscall.Kill(pid, syscall.SIGUSR1) }),
		of("signal-group", func(pid int) error { return syscall.Kill(-pid, syscall.SIGUSR1) }),
		of("tgkill", func(pid int) error { return unix.Tgkill(pid, pid, syscall.SIGUSR1) }),
		of("tkill", func(pid int) error { return syscallError(unix.SYS_TKILL, uintptr(pid), uintptr(syscall.SIGUSR1)) }),
		of("queue", queueForgedSignal),
		of("pidfd", func(pid int) error { _, err := unix.PidfdOpen(pid, 0); return err }),
		of("trace", ptraceAttach),
		of("seize", ptraceSeize),
		of("memory-read", memoryAccess(unix.SYS_PROCESS_VM_READV)),
		of("memory-write", memoryAccess(unix.SYS_PROCESS_VM_WRITEV)),
		of("compare", func(pid int) error { return syscallError(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(pid), 1, 0, 0) }),
		of("limits", readProcessLimit),
		of("priority", func(pid int) error { return syscall.Setpriority(syscall.PRIO_PROCESS, pid, 19) }),
		of("scheduler", func(pid int) error {
			var p int32
			return syscallError(unix.SYS_SCHED_SETSCHEDULER, uintptr(pid), 0, uintptr(unsafe.Pointer(&p)))
		}),
		of("affinity", func(pid int) error { var m unix.CPUSet; m.Set(0); return unix.SchedSetaffinity(pid, &m) }),
		of("io-priority", func(pid int) error { return syscallError(unix.SYS_IOPRIO_SET, 1, uintptr(pid), 3<<13) }),
		{Name: "process/session-of", Full: "that a process is there shows in how a signal to it is refused",
			try: func(s *Scene) verdict {
				return s.tryOnOutsiders(func(pid int) error { _, err := unix.Getsid(pid); return err })
			}},
		of("move-pages", func(pid int) error { return syscallError(unix.SYS_MOVE_PAGES, uintptr(pid), 0, 0, 0, 0, 0) }),
		of("futex-list", robustList),
		{Name: "process/signal-all", try: func(*Scene) verdict { return broadcastVerdict(syscall.Kill(-1, syscall.SIGUSR1)) }},
		{Name: "process/signal-own-group", try: func(*Scene) verdict { return broadcastVerdict(syscall.Kill(0, syscall.SIGUSR1)) }},
		{Name: "process/priority-of-all", try: func(*Scene) verdict {
			return broadcastVerdict(syscall.Setpriority(syscall.PRIO_USER, os.Getuid(), 19))
		}},
		{Name: "process/group-join", try: groupJoin},
		{Name: "process/session", try: checkSessionLeader, here: true},
		{Name: "process/oom-score", try: func(*Scene) verdict {
			return errorVerdict(os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0), "its turn at the end")
		}},
		init("trace", ptraceAttach),
		init("seize", ptraceSeize),
		init("memory-read", memoryAccess(unix.SYS_PROCESS_VM_READV)),
		init("memory-write", memoryAccess(unix.SYS_PROCESS_VM_WRITEV)),
		init("descriptor", stealDescriptor),
		init("namespaces", func(pid int) error { return joinByPidfd(pid) }),
		init("move-pages", func(pid int) error {
			return syscallError(unix.SYS_MOVE_PAGES, uintptr(pid), 1, uintptr(unsafe.Pointer(new([1]uintptr))), 0,
				uintptr(unsafe.Pointer(new([1]int32))), 0)
		}),
		init("advice", func(pid int) error {
			return byPidfd(pid, func(fd int) error {
				return syscallError(unix.SYS_PROCESS_MADVISE, uintptr(fd),
					uintptr(unsafe.Pointer(&[2]uintptr{4096, 4096})), 1, unix.MADV_COLD, 0)
			})
		}),
		init("futex-list", robustList),
		// PID 1 has the tool's uid. If it dies, the cage dies: a probe that succeeds prints no line.
		{Name: "process/init-signals", Full: "there is no PID 1 of its own", try: initSignals},
	}
}

//go:uintptrescapes
func syscallError(trap uintptr, a ...uintptr) error { _, err := doSyscall(trap, a...); return err }

// tryOnOutsiders tries an action on the victim and on all other known processes outside.
func (s *Scene) tryOnOutsiders(try func(pid int) error) verdict {
	var all verdictSeries
	for _, pid := range append([]int{s.Victim}, s.Pids...) {
		all.addVerdict("pid "+formatInt(pid), errorVerdict(try(pid), "reached", syscall.EBADF))
	}
	return all.overallVerdict()
}

// broadcastVerdict returns the verdict on an action that reaches all processes in reach, and so causes no error.
func broadcastVerdict(err error) verdict {
	if err != nil {
		return errorVerdict(err, "")
	}
	return heldVerdict("sent; if a process outside received it, the test fails")
}

// listProcesses looks for processes with the token in their command line, such as the victim. It must see its own process.
func listProcesses(s *Scene) verdict {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return errorVerdict(err, "")
	}
	n := 0
	for _, e := range entries {
		if e.Name()[0] < '0' || e.Name()[0] > '9' {
			continue
		}
		n++
		if b, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline"); strings.Contains(string(b), s.Token) {
			return openVerdict("process %s of the host: %q", e.Name(), b)
		}
	}
	return heldVerdict("%d processes, none of the host's", n)
}

func ptraceAttach(pid int) error {
	return syscallError(unix.SYS_PTRACE, unix.PTRACE_ATTACH, uintptr(pid), 0, 0)
}
func ptraceSeize(pid int) error {
	return syscallError(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0)
}

// queueForgedSignal sends a signal with a forged sender (rt_sigqueueinfo(2)).
func queueForgedSignal(pid int) error {
	info := make([]int32, 32)
	info[0], info[2] = int32(syscall.SIGUSR1), -1 // SI_QUEUE
	return syscallError(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(syscall.SIGUSR1),
		uintptr(unsafe.Pointer(&info[0])))
}

// memoryAccess transfers no byte: the kernel first checks whether this process may, and then the addresses.
func memoryAccess(trap uintptr) func(int) error {
	return func(pid int) error {
		var b [8]byte
		here := unix.Iovec{Base: &b[0], Len: 8}
		there := unix.RemoteIovec{Base: 0x400000, Len: 8}
		err := syscallError(trap, uintptr(pid), uintptr(unsafe.Pointer(&here)), 1, uintptr(unsafe.Pointer(&there)), 1,
			0)
		if err == syscall.EFAULT { // it was let in, but no memory is mapped at that address
			return nil
		}
		return err
	}
}

func readProcessLimit(pid int) error {
	var old unix.Rlimit
	return unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old)
}

func robustList(pid int) error {
	var head, size uintptr
	return syscallError(unix.SYS_GET_ROBUST_LIST, uintptr(pid), uintptr(unsafe.Pointer(&head)),
		uintptr(unsafe.Pointer(&size)))
}

func byPidfd(pid int, do func(fd int) error) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return do(fd)
}

// stealDescriptor takes the stream to the gateway.
func stealDescriptor(pid int) error {
	return byPidfd(pid, func(fd int) error { _, err := unix.PidfdGetfd(fd, 3, 0); return err })
}

func joinByPidfd(pid int) error {
	return byPidfd(pid, func(fd int) error {
		return syscallError(unix.SYS_SETNS, uintptr(fd), unix.CLONE_NEWNET|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS)
	})
}

// groupJoin enters the process group of a process outside; kill(0) would then reach that group.
func groupJoin(s *Scene) verdict {
	return s.tryOnOutsiders(func(pid int) error { return syscall.Setpgid(0, pid) })
}

// checkSessionLeader checks that the first process leads its session, so that it shares no group and has no terminal (trap 3).
func checkSessionLeader(*Scene) verdict {
	sid, err := unix.Getsid(0)
	if err != nil {
		return oddVerdict("%v", err)
	}
	if group := syscall.Getpgrp(); sid != os.Getpid() || group != os.Getpid() {
		return openVerdict("session %d, group %d, pid %d", sid, group, os.Getpid())
	}
	return heldVerdict("it leads its own")
}

// initSignals sends all signals except those that the C library reserves: see signals in package inside.
func initSignals(*Scene) verdict {
	var s verdictSeries
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if sig >= 32 && sig <= 34 {
			continue
		}
		if err := syscall.Kill(1, sig); err != nil {
			s.addVerdict(fmt.Sprint(sig), errorVerdict(err, ""))
		}
	}
	waitForSignals()
	return heldVerdict("PID 1 lives")
}
