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

// Bare is whether this platform has no cage, so that calls are held by policy alone. On Linux it never is: a cage
// that cannot be built is a refusal.
const Bare = false

// newBare is what [None] runs with.
func newBare(cfg Config) (*bare, error) { return &bare{path: searchPath, mask: cfg.Mask}, nil }

// bareDir names the directory that was opened, whatever has its path by now (proc(5): the links of fd lead to the open
// file itself). The child goes there before it executes anything, and has the descriptor until then.
func bareDir(p bailey.Place) string { return fmt.Sprintf("/proc/self/fd/%d", p.File.Fd()) }

// bareEnded returns when the program has ended, and leaves it to be waited for: nobody else gets its number until what it
// left in its session is dead.
func bareEnded(cmd *exec.Cmd) {
	for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// bareSession signals what stayed in a session and left the group of its leader (setpgid(2)), a group at a time, since of
// a group none is missed that forks meanwhile (kill(2)). SIGKILL is sent until none of them lives, for as long as others
// could hold a call up; what began a session of its own (setsid(2)) is not found.
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

// bareGroups are the process groups of a session in which something lives, but for the leader's own.
func bareGroups(session int) (groups []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // those that are left out have gone
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		// pid (comm) state ppid pgrp session …, where comm may hold anything (proc_pid_stat(5))
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
