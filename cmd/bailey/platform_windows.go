package main

import (
	"errors"
	"io/fs"
	"syscall"
	"time"
)

// nobodyListens reports whether err, from connect, means that no process listens on the socket.
func nobodyListens(err error) bool {
	const refused = syscall.Errno(10061) // WSAECONNREFUSED
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, refused)
}

func writable(dir string) error { return roomFor(dir) }

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

// managedDirs returns the directory in which an administrator stores managed settings for Claude Code.
func managedDirs() []string { return []string{`C:\Program Files\ClaudeCode`} }

// startsScripts is false: Windows chooses the interpreter by file extension.
const startsScripts = false
