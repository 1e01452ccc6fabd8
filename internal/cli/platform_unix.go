//go:build linux || darwin

package cli

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// nobodyListens reports whether err, from connect(2), means that no process listens on the socket.
func nobodyListens(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// managedDirs returns the directories in which an administrator stores managed settings for Claude Code, on Linux and
// macOS.
func managedDirs() []string {
	return []string{"/etc/claude-code", "/Library/Application Support/ClaudeCode"}
}

// startsScripts reports whether the kernel runs a script with the interpreter in its first line.
const startsScripts = true

// execProgram replaces this program by another one (execve(2)). It returns only if that fails.
func execProgram(program string, argv []string) error {
	return syscall.Exec(program, argv, os.Environ())
}

// programSuffix ends the file name of a program.
const programSuffix = ""
