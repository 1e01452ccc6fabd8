package jail

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// If a keeper is killed, it cannot end the processes that it kept. The kernel gives them to the next subreaper above,
// which is this process: see adopt. Among its children this process recognizes them by a mark that each child inherits
// and that no process can drop: no_new_privs, and a system call filter more than this process has. The PID 1 of a full
// cage has that mark too, but is in another PID namespace.

// enterSubreaper makes this process the subreaper of its keepers' orphans. disown ends that when as many calls have ended as
// began: foreign orphans arrive too, no code waits for them, and they must not accumulate for ever.
func (j *Jail) enterSubreaper() error {
	j.gathering.Lock()
	defer j.gathering.Unlock()
	if j.calls == 0 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return layerUnavailable("subreaper", os.NewSyscallError("prctl", err))
		}
	}
	j.calls++
	return nil
}

// callsNow returns the number of calls in the lesser cage, including the one that is about to start.
func (j *Jail) callsNow() uint64 {
	j.gathering.Lock()
	defer j.gathering.Unlock()
	return uint64(j.calls) + 1
}

func (j *Jail) leaveSubreaper() {
	j.gathering.Lock()
	defer j.gathering.Unlock()
	if j.calls--; j.calls == 0 {
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	}
}

// endOrphans ends the processes that killed keepers have left. As in package inside, none is reaped before all are
// dead.
func endOrphans() {
	own := markOf("self")
	for {
		var dead []int
		alive := false
		for _, pid := range ownChildren() {
			m := markOf(strconv.Itoa(pid))
			if m.parent != os.Getpid() || m.filters <= own.filters || !m.noNewPrivs || m.spaces != own.spaces {
				continue
			}
			if hasExited(pid) {
				dead = append(dead, pid)
				continue
			}
			unix.Kill(pid, unix.SIGKILL)
			alive = true
		}
		if alive {
			time.Sleep(200 * time.Microsecond)
			continue
		}
		for _, pid := range dead {
			unix.Wait4(pid, nil, unix.WNOHANG|unix.WALL, nil)
		}
		if len(dead) == 0 {
			return
		}
	}
}

type mark struct {
	parent     int
	filters    int
	noNewPrivs bool
	spaces     int // number of PID namespaces it is in
}

func markOf(pid string) mark {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return mark{}
	}
	_, spaces, _ := strings.Cut(string(status), "\nNSpid:")
	spaces, _, _ = strings.Cut(spaces, "\n")
	return mark{statusField(status, "PPid:"), statusField(status, "Seccomp_filters:"),
		statusField(status, "NoNewPrivs:") == 1, len(strings.Fields(spaces))}
}

// ownChildren lists the processes whose parent is this one (proc_tid_children(5)), or all processes if the kernel keeps
// no such list.
func ownChildren() []int {
	dir, err := openProc(unix.AT_FDCWD, "/proc/self")
	if err != nil {
		return nil
	}
	defer unix.Close(dir)
	pids, err := childPIDs(dir)
	if errors.Is(err, errNoChildren) {
		return listProcesses()
	}
	return pids
}

// hasExited tells whether a child has ended and waits to be reaped.
func hasExited(pid int) bool {
	var info [32]int32 // siginfo_t: si_pid follows three ints and four bytes of padding
	_, _, e := unix.Syscall6(unix.SYS_WAITID, unix.P_PID, uintptr(pid), uintptr(unsafe.Pointer(&info)),
		unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, 0, 0)
	return e == 0 && info[4] == int32(pid)
}

// tasksOf counts the tasks of a user as RLIMIT_NPROC does: by real uid, on the whole machine (setrlimit(2)).
func tasksOf(uid int) int {
	n := 0
	for _, pid := range listProcesses() {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if err == nil && statusField(status, "Uid:") == uid {
			n += max(statusField(status, "Threads:"), 1) // a zombie has none, but counts
		}
	}
	return n
}

func listProcesses() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// statusField returns the first number of a line of proc_pid_status(5), or -1 if the line is missing.
func statusField(status []byte, name string) int {
	_, rest, ok := strings.Cut("\n"+string(status), "\n"+name)
	if !ok {
		return -1
	}
	line, _, _ := strings.Cut(rest, "\n")
	words := strings.Fields(line)
	if len(words) == 0 {
		return -1
	}
	n, err := strconv.Atoi(words[0])
	if err != nil {
		return -1
	}
	return n
}
