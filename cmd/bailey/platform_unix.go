//go:build linux || darwin

package main

import (
	"errors"
	"io/fs"
	"syscall"
	"time"
)

// Flags for opening what may have become a pipe, or a link, by now (open(2)).
const (
	noWait   = syscall.O_NONBLOCK
	noFollow = syscall.O_NOFOLLOW
	tooWide  = 0o077 // bits of a mode that let others at a file
)

// nobodyListens tells an error of connect(2) from a socket without a listener.
func nobodyListens(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// writable asks the kernel, which knows of read-only mounts as well (access(2)).
func writable(dir string) error {
	const write, search = 2, 1
	return syscall.Access(dir, write|search)
}

// cpuTime is what this process has used of the processors (getrusage(2)).
func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// managedDirs are where whoever runs a machine keeps settings of Claude Code's: Linux, macOS.
func managedDirs() []string {
	return []string{"/etc/claude-code", "/Library/Application Support/ClaudeCode"}
}

// startsScripts: the kernel starts a file by the program that its first line names.
const startsScripts = true
