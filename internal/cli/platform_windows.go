package cli

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// nobodyListens reports whether err, from connect, means that no process listens on the socket.
func nobodyListens(err error) bool {
	const refused = syscall.Errno(10061) // WSAECONNREFUSED
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, refused)
}

// managedDirs returns the directory in which an administrator stores managed settings for Claude Code.
func managedDirs() []string { return []string{`C:\Program Files\ClaudeCode`} }

// startsScripts is false: Windows chooses the interpreter by file extension.
const startsScripts = false

// execProgram runs another program to its end, because Windows cannot replace this one.
func execProgram(program string, argv []string) error {
	cmd := exec.Command(program, argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return Exit(ended.ExitCode())
	}
	return err
}

// programSuffix ends the file name of a program.
const programSuffix = ".exe"
