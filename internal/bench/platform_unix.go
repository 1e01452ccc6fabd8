//go:build linux || darwin

package bench

import (
	"syscall"
	"time"
)

// cpuTime returns the processor time that this process has used (getrusage(2)).
func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
