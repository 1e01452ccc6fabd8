package jail

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Intervals of the watcher. The first is shorter, for a tool that takes memory at once.
const (
	firstLook = 5 * time.Millisecond
	nextLook  = 50 * time.Millisecond
	lostTime  = 2 * time.Second // between the last sight of a cage and the report that it has ended
)

// exactTime bounds an exact measurement, in which the kernel walks page tables: some milliseconds for 100 MiB.
const exactTime = 500 * time.Millisecond

// A watch replaces a control group: it adds up the use of all processes in a cage and ends the cage if that exceeds the
// bounds. Between two measurements a cage can exceed its bounds, and the processors are not shared by weight.
//
// It finds the processes from PID 1 down, through descriptors of their directories in /proc: such a descriptor never
// refers to another process, even if a pid is reused.
type usageWatcher struct {
	process *os.Process
	root    int // descriptor of /proc/PID of PID 1
	bounds  bounds
	begun   bool
	lost    time.Duration // lostTime, except in tests
	stop    chan struct{}
	said    chan string     // gets the reason before the cage is ended
	looking *sync.WaitGroup // of all watches
}

// newWatch opens the directory of PID 1, for which the caller must not have waited yet, and checks that it is visible.
func newWatch(p *os.Process, looking *sync.WaitGroup) (*usageWatcher, error) {
	w := &usageWatcher{process: p, lost: lostTime, stop: make(chan struct{}), said: make(chan string, 1),
		looking: looking}
	var err error
	if w.root, err = openProc(unix.AT_FDCWD, "/proc/"+strconv.Itoa(p.Pid)); err != nil {
		return nil, err
	}
	if _, err := w.measureUsage(time.Time{}); err != nil {
		unix.Close(w.root)
		return nil, err
	}
	return w, nil
}

func (w *usageWatcher) layerName() string { return layerWatcher }

func (w *usageWatcher) setBounds(b bounds) error {
	w.bounds, w.begun = b, true
	w.looking.Go(func() {
		defer unix.Close(w.root)
		if over := w.measureUntilOver(); over != "" {
			w.said <- over
			w.process.Kill()
		}
	})
	return nil
}

// stopEnforcing does not wait for a measurement in progress: if the watch ended the cage, the reason was sent before.
func (w *usageWatcher) stopEnforcing() (over string) {
	close(w.stop)
	if !w.begun {
		unix.Close(w.root)
	}
	select {
	case over = <-w.said:
	default:
	}
	return over
}

// measureUntilOver measures until the cage exceeds its bounds or is gone.
func (w *usageWatcher) measureUntilOver() (over string) {
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	for {
		select {
		case <-w.stop:
			return ""
		case <-timer.C:
		}
		u, err := w.measureUsage(time.Time{})
		if err == nil && u.memory > w.bounds.memory { // shared pages were counted for each process
			u, err = w.measureUsage(time.Now().Add(exactTime))
		}
		switch {
		case isProcessGone(err): // or hidden from us (proc(5), hidepid): then no report of its end comes
			select {
			case <-w.stop:
				return ""
			case <-time.After(w.lost):
				return "the watcher cannot see the tool (a /proc with hidepid hides it)"
			}
		case err != nil: // a watcher that cannot measure enforces nothing
			return "the watcher can no longer observe the tool (" + err.Error() + ")"
		case u.memory > w.bounds.memory:
			return w.bounds.overMemory()
		case u.tasks > w.bounds.tasks:
			return w.bounds.overTasks()
		}
		timer.Reset(nextLook)
	}
}

// usage is the sum over processes: bytes of private memory, and threads.
type usage struct{ memory, tasks uint64 }

// measureUsage adds up PID 1 and all its descendants; no process leaves the init of its pid namespace. Until the time exact,
// pages that several processes share are counted proportionally, as the kernel does it.
func (w *usageWatcher) measureUsage(exact time.Time) (sum usage, err error) {
	type link struct{ pid, parent int }
	children, err := w.addProcess(&sum, w.root, exact)
	if err != nil {
		return usage{}, err
	}
	var queue []link
	for parent := w.process.Pid; ; {
		for _, pid := range children {
			queue = append(queue, link{pid, parent})
		}
		if len(queue) == 0 {
			return sum, nil
		}
		next := queue[0]
		queue, parent = queue[1:], next.pid
		if children, err = w.addDescendant(&sum, next.pid, next.parent, exact); err != nil {
			return usage{}, err
		}
	}
}

// addDescendant adds one process below PID 1 unless it is gone.
func (w *usageWatcher) addDescendant(sum *usage, pid, parent int, exact time.Time) (children []int, err error) {
	dir, err := openProc(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid))
	if err == nil {
		defer unix.Close(dir)
		var s status
		s, err = readStatus(dir)
		// An orphan becomes a child of PID 1. Any other parent means that the pid was reused.
		if err == nil && (s.parent == parent || s.parent == w.process.Pid) {
			children, err = w.addProcess(sum, dir, exact)
		}
	}
	if isProcessGone(err) {
		return nil, nil
	}
	return children, err
}

// addProcess counts the process whose directory is open, and returns its children.
func (w *usageWatcher) addProcess(sum *usage, dir int, exact time.Time) ([]int, error) {
	s, err := readStatus(dir)
	if err != nil {
		return nil, err
	}
	if n, ok := proportionalMemory(dir, exact); ok {
		s.memory = n
	}
	sum.memory += s.memory
	sum.tasks += s.threads
	return childPIDs(dir)
}

// proportionalMemory returns a process's proportional share of its memory (proc_pid_smaps_rollup(5)), if there is time and the
// kernel shows it: a process can hide that from its own uid, and then counts in full.
func proportionalMemory(dir int, until time.Time) (uint64, bool) {
	if !time.Now().Before(until) {
		return 0, false
	}
	text, err := readAt(dir, "smaps_rollup")
	if err != nil {
		return 0, false
	}
	n, found := sumKilobytes(text, "Pss_Anon:", "Pss_Shmem:", "SwapPss:")
	return n, found == 3
}

// childPIDs returns the pids of a process's children, over all its threads.
func childPIDs(dir int) (pids []int, err error) {
	fd, err := openProc(dir, "task")
	if err != nil {
		return nil, err
	}
	task := os.NewFile(uintptr(fd), "task")
	defer task.Close()
	threads, err := task.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, thread := range threads {
		text, err := readAt(dir, "task/"+thread+"/children")
		if isProcessGone(err) {
			if _, err := readAt(dir, "task/"+thread+"/comm"); err == nil {
				return nil, errNoChildren
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		for word := range bytes.FieldsSeq(text) {
			pid, err := strconv.Atoi(string(word))
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

var errNoChildren = errors.New("the kernel does not list children (CONFIG_PROC_CHILDREN)")

// isProcessGone tells whether an error means that the process no longer exists.
func isProcessGone(err error) bool { return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) }

func openProc(at int, name string) (int, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// status is the part of a process's status that the watcher needs (proc_pid_status(5)).
type status struct {
	parent  int
	threads uint64
	memory  uint64 // bytes: private, shared without a file, and swapped out
}

func readStatus(dir int) (status, error) {
	text, err := readAt(dir, "status")
	if err != nil {
		return status{}, err
	}
	return parseStatus(text)
}

// parseStatus reads /proc/PID/status. A process that has ended and waits for its parent has no memory.
func parseStatus(text []byte) (status, error) {
	parent, threads := statusField(text, "PPid:"), statusField(text, "Threads:")
	if parent < 0 || threads < 0 {
		return status{}, errors.New("/proc shows a process without its parent or threads")
	}
	memory, _ := sumKilobytes(text, "RssAnon:", "RssShmem:", "VmSwap:")
	return status{parent, uint64(threads), memory}, nil
}

// sumKilobytes returns the sum of lines such as "RssAnon: 12 kB", in bytes, and their number.
func sumKilobytes(text []byte, names ...string) (sum uint64, found int) {
	for line := range bytes.Lines(text) {
		w := bytes.Fields(line)
		if len(w) != 3 || string(w[2]) != "kB" {
			continue
		}
		for _, name := range names {
			if string(w[0]) != name {
				continue
			}
			if n, err := strconv.ParseUint(string(w[1]), 10, 50); err == nil {
				sum += n << 10
				found++
			}
		}
	}
	return sum, found
}

// readAt reads at most 64 KiB of a file in /proc.
func readAt(dir int, name string) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 2<<10)
	for len(b) < 64<<10 {
		b = slices.Grow(b, 1<<10)
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: name, Err: err}
		}
		if n == 0 {
			break
		}
		b = b[:len(b)+n]
	}
	return b, nil
}
