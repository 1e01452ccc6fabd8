package main

import (
	"errors"
	"io/fs"
	"syscall"
	"time"
)

// There is nothing to ask for: pipes have no names in directories, and openers look at links by themselves. Modes say nothing.
const noWait, noFollow, tooWide = 0, 0, 0

// nobodyListens tells an error of connect from a socket without a listener.
func nobodyListens(err error) bool {
	const refused = syscall.Errno(10061) // WSAECONNREFUSED
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, refused)
}

func writable(dir string) error { return roomFor(dir) }

// cpuTime is what this process has used of the processors (GetProcessTimes, which counts in 100 ns).
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

// managedDirs are where whoever runs a machine keeps settings of Claude Code's.
func managedDirs() []string { return []string{`C:\Program Files\ClaudeCode`} }

// startsScripts: Windows goes by the ends of names.
const startsScripts = false
