package bench

import (
	"syscall"
	"time"
)

// cpuTime returns the processor time that this process has used (GetProcessTimes, in units of 100 ns).
func cpuTime() time.Duration {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var begin, end, kernel, user syscall.Filetime
	if syscall.GetProcessTimes(self, &begin, &end, &kernel, &user) != nil {
		return 0
	}
	ticks := func(t syscall.Filetime) int64 { return int64(t.HighDateTime)<<32 + int64(t.LowDateTime) }
	return time.Duration(ticks(kernel)+ticks(user)) * 100
}
