package peer

import (
	"fmt"
	"os"
)

// Executable is the program of a process, as far as it may be seen: that of another uid is root's to see. The process may
// have ended since, and its number be another's: this is for the record, and decides nothing.
func Executable(pid int) string {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return "not to be seen"
	}
	return name
}
