//go:build linux || darwin

package main

import (
	"errors"
	"io/fs"
	"syscall"
	"time"
)

// nobodyListens reports whether err, from connect(2), means that no process listens on the socket.
func nobodyListens(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// writable asks the kernel, which also knows of read-only mounts (access(2)).
func writable(dir string) error {
	const write, search = 2, 1
	return syscall.Access(dir, write|search)
}

// cpuTime returns the processor time that this process has used (getrusage(2)).
func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// managedDirs returns the directories in which an administrator stores managed settings for Claude Code, on Linux and
// macOS.
func managedDirs() []string {
	return []string{"/etc/claude-code", "/Library/Application Support/ClaudeCode"}
}

// startsScripts reports whether the kernel runs a script with the interpreter in its first line.
const startsScripts = true
