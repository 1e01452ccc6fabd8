package battery

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// resourceProbes are attempts to exhaust shared resources. Each also bounds itself, so that it does no harm if the cage does
// not stop it: no more than 400 tasks, 1 GiB, some seconds.
func resourceProbes() []Probe {
	list := []Probe{
		{Name: "resource/tasks", try: tryForkBomb, Alone: true},
		{Name: "resource/memory", try: tryExceedMemory},
		{Name: "resource/memory-of-many", try: tryExceedTogether, Alone: true},
		{Name: "resource/shared-memory", try: sharedBalloon, Alone: true, dies: true},
		{Name: "resource/segments", try: fillShmSegments, Alone: true, dies: true},
		{Name: "resource/tmp", try: func(s *Scene) verdict { return fillFilesystem(s.Tmp, 256<<20) }, Full: "no filesystem of its own: see Lacks"},
		{Name: "resource/home", try: func(s *Scene) verdict { return fillFilesystem(s.Home, 64<<20) }, Full: "no filesystem of its own: see Lacks"},
		{Name: "resource/inodes", try: func(s *Scene) verdict { return exhaustInodes(s.Home, 20000) }, Full: "no filesystem of its own: see Lacks"},
		{Name: "resource/file-size", try: func(s *Scene) verdict {
			return errorVerdict(createSparseFile(filepath.Join(s.RW, "battery-sparse"), 8<<30), "a file of 8 GiB",
				syscall.EFBIG)
		}},
		{Name: "resource/descriptors", try: func(*Scene) verdict {
			return repeatUntil(1<<14, syscall.EMFILE,
				func() error { _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); return err })
		}},
		{Name: "resource/descriptors-in-flight", try: inFlight},
		{Name: "resource/pipe-size", try: pipeSize},
		{Name: "resource/locked-memory", try: func(*Scene) verdict {
			b := make([]byte, 1<<20)
			return errorVerdict(unix.Mlock(b), "a MiB is locked", syscall.ENOMEM)
		}},
		{Name: "resource/watches", try: func(*Scene) verdict {
			return repeatUntil(16, syscall.EMFILE, func() error { _, err := unix.InotifyInit1(0); return err })
		}},
		{Name: "resource/queues", try: openMessageQueues},
		{Name: "resource/signals", try: queueSignals},
		{Name: "resource/huge-pages", try: hugePages},
		{Name: "resource/socket-filter", try: socketFilter},
		{Name: "resource/nice", try: func(*Scene) verdict {
			return errorVerdict(syscall.Setpriority(syscall.PRIO_PROCESS, 0, -5), "before others")
		}},
		{Name: "resource/io-real-time", try: func(*Scene) verdict { return trySyscall("the disk before others", unix.SYS_IOPRIO_SET, 1, 0, 1<<13) }},
		{Name: "resource/core", try: func(*Scene) verdict { return checkCoreLimit(false) }},
		{Name: "resource/core-lowered", try: func(*Scene) verdict { return checkCoreLimit(true) }},
		{Name: "resource/raise-limits", try: raiseLimits},
	}
	for name, policy := range map[string]uint32{"fifo": unix.SCHED_FIFO, "round-robin": unix.SCHED_RR,
		"deadline": unix.SCHED_DEADLINE} {
		list = append(list, Probe{Name: "resource/real-time-" + name, try: func(*Scene) verdict {
			attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: 1}
			if policy == unix.SCHED_DEADLINE {
				attr.Priority, attr.Runtime, attr.Deadline, attr.Period = 0, 1e6, 1e7, 1e7
			}
			return errorVerdict(unix.SchedSetAttr(0, &attr, 0), "in real time")
		}})
	}
	return list
}

// checkCoreLimit tells whether a crash would start the program that the host's core_pattern names: only with a limit of 1 does
// the kernel not start it (core(5)). If lowers is true, the tool tries to set the limit to 0 first, with which the
// kernel would start it.
func checkCoreLimit(lowers bool) verdict {
	if lowers {
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
		unix.Prlimit(0, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
	}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
		return oddVerdict("%v", err)
	}
	if l.Cur != 1 || l.Max != 1 {
		return openVerdict("%d of %d", l.Cur, l.Max)
	}
	return heldVerdict("1")
}

// repeatUntil repeats take until an error means that a bound is reached.
func repeatUntil(most int, bound syscall.Errno, take func() error) verdict {
	for n := range most {
		if err := take(); err != nil {
			return errorVerdict(err, formatInt(n), bound)
		}
	}
	return openVerdict("%d of them", most)
}

// tryForkBomb starts tasks until no more can be started. The number counts (trap 14: the limit is that of this cage, not of
// all processes of its user).
func tryForkBomb(s *Scene) verdict {
	n := 0
	for ; n < 400; n++ {
		cmd := exec.Command(os.Args[0], "linger", s.Token)
		if err := cmd.Start(); err != nil {
			break
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
	}
	if n > s.Tasks {
		return openVerdict("%d processes, %d were allowed", n, s.Tasks)
	}
	return heldVerdict("%d processes", n)
}

// allocateMemory maps memory and writes to each page of it.
func allocateMemory(bytes int64, flags int) error {
	b, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|flags)
	if err != nil {
		return err
	}
	touchPages(b)
	return nil
}

// touchPages makes the kernel allocate each page of a mapping.
func touchPages(b []byte) {
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
}

func tryExceedMemory(s *Scene) verdict {
	return errorVerdict(allocateMemory(s.Memory+s.Memory/2, unix.MAP_PRIVATE), "half more than the bound",
		syscall.ENOMEM)
}

// tryExceedTogether take together more than the bound on the whole. The killed process reports nothing: the test must check
// that.
func tryExceedTogether(s *Scene) verdict {
	const n = 4
	var parts []*exec.Cmd
	for range n {
		cmd := exec.Command(os.Args[0], "part")
		if err := cmd.Start(); err != nil {
			return errorVerdict(err, "")
		}
		parts = append(parts, cmd)
	}
	var ends error
	for _, cmd := range parts {
		ends = errors.Join(ends, cmd.Wait())
	}
	if ends != nil {
		return heldVerdict("%v", ends)
	}
	return openVerdict("%d processes with half the bound each", n)
}

// useHalfMemory takes half of the common bound and keeps it until the others have their part.
func (s *Scene) useHalfMemory() int {
	if err := allocateMemory(s.Memory/2, unix.MAP_PRIVATE); err != nil {
		return 1
	}
	time.Sleep(time.Second)
	return 0
}

// sharedBalloon takes memory that belongs to no process alone, which RLIMIT_DATA does not count.
func sharedBalloon(s *Scene) verdict {
	return errorVerdict(allocateMemory(s.Memory+s.Memory/2, unix.MAP_SHARED), "half more than the bound, shared",
		syscall.ENOMEM)
}

// fillShmSegments outlive the processes that made them, until the namespace is gone.
func fillShmSegments(s *Scene) verdict {
	const size = 64 << 20
	var kept int64
	for ; kept < s.Memory+s.Memory/2; kept += size {
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, size, unix.IPC_CREAT|0o600)
		if err != nil {
			return errorVerdict(err, "", syscall.ENOSPC, syscall.ENOMEM)
		}
		b, err := unix.SysvShmAttach(id, 0, 0)
		if err != nil {
			return errorVerdict(err, "", syscall.ENOMEM)
		}
		touchPages(b)
	}
	return openVerdict("%d MiB in segments", kept>>20)
}

// fillFilesystem allocates more than the size of the filesystem.
func fillFilesystem(dir string, most int64) verdict {
	path := filepath.Join(dir, "battery-fill")
	f, err := os.Create(path)
	if err != nil {
		return oddVerdict("%v", err)
	}
	defer os.Remove(path)
	defer f.Close()
	err = unix.Fallocate(int(f.Fd()), 0, 0, most+most/8)
	return errorVerdict(err, "more than its size", syscall.ENOSPC, syscall.EFBIG)
}

// exhaustInodes makes empty files until the inodes are used up.
func exhaustInodes(dir string, most int) verdict {
	dir = filepath.Join(dir, "battery-names")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return oddVerdict("%v", err)
	}
	defer os.RemoveAll(dir)
	n := 0
	return repeatUntil(most, syscall.ENOSPC, func() error {
		n++
		fd, err := unix.Open(filepath.Join(dir, formatInt(n)), unix.O_CREAT|unix.O_WRONLY, 0o644)
		unix.Close(fd)
		return err
	})
}

func createSparseFile(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	defer f.Close()
	return f.Truncate(size)
}
