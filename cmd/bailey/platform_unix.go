//go:build linux || darwin

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Flags for opening what may have become a pipe, or a link, by now (open(2)).
const (
	noWait   = syscall.O_NONBLOCK
	noFollow = syscall.O_NOFOLLOW
	tooWide  = 0o077 // bits of a mode that let others at a file
)

// detach puts a gateway into a session of its own and gives it the descriptor ready, as the number it returns.
func detach(cmd *exec.Cmd, ready *os.File) (string, error) {
	cmd.ExtraFiles = []*os.File{ready}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return "3", nil
}

// inherited is the descriptor that detach gave, nil when number says none.
func inherited(number string) *os.File {
	if number != "3" {
		return nil
	}
	syscall.CloseOnExec(3)
	return os.NewFile(3, "ready")
}

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
