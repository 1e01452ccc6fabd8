package jail

import (
	"os"
	"strconv"
	"strings"
)

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
