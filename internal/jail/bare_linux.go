package jail

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
)

// Bare tells whether this platform has no cage, so that only policy restricts calls. On Linux it is always false: if a
// cage cannot be built, the call is refused.
const Bare = false

// newBare returns the runner that [None] uses.
func newBare(cfg Config) (*bare, error) { return &bare{path: searchPath, mask: cfg.Mask}, nil }

// bareDir names the directory that was opened, even if its path now leads elsewhere (proc(5): the links in fd lead to
// the open file itself). The child changes to it before it executes a program, and has the descriptor until then.
func bareDir(p bailey.Place) string { return fmt.Sprintf("/proc/self/fd/%d", p.File.Fd()) }

// bareEnded returns when the program has ended, but does not reap it. So its pid cannot be reused before all processes
// that it left in its session are dead.
func bareEnded(cmd *exec.Cmd) {
	for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// bareSession signals processes that stayed in a session and left the group of its leader (setpgid(2)). It signals
// whole groups, so that it misses no process that forks meanwhile (kill(2)). It repeats SIGKILL until none of them
// lives, but at most for DefaultGrace, so that they cannot delay the call. A process that began a session of its own
// (setsid(2)) is not found.
func bareSession(id int, s syscall.Signal) {
	for end := time.Now().Add(DefaultGrace); ; time.Sleep(time.Millisecond) {
		groups := bareGroups(id)
		for _, g := range groups {
			syscall.Kill(-g, s)
		}
		if len(groups) == 0 || s != syscall.SIGKILL || time.Now().After(end) {
			return
		}
	}
}

// bareGroups returns the process groups of a session that have a live process, except the leader's own.
func bareGroups(session int) (groups []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // processes that are left out have ended
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		// pid (comm) state ppid pgrp session …, where comm may contain any character (proc_pid_stat(5))
		words := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(words) < 4 || words[0] == "Z" || words[0] == "X" || words[3] != strconv.Itoa(session) {
			continue
		}
		if g, err := strconv.Atoi(words[2]); err == nil && g > 1 && g != session {
			groups = append(groups, g)
		}
	}
	return groups
}
