package peer

import (
	"fmt"
	"os"
)

// Executable returns the program of a process, if this process may read it; for another uid only root may. The process
// may have ended and its PID been reused, so the result is for the record and must not decide anything.
func Executable(pid int) string {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return "not visible"
	}
	return name
}
