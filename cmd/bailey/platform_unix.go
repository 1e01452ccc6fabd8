//go:build linux || darwin

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// Flags for opening what may have become a pipe, or a link, by now (open(2)).
const (
	noWait   = syscall.O_NONBLOCK
	noFollow = syscall.O_NOFOLLOW
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

// foreign says why the directory is somebody else's, or open to others.
func foreign(dir string, info fs.FileInfo) (what, cure string) {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || int(st.Uid) != os.Geteuid():
		return dir + " belongs to somebody else", "set BAILEY_HOME to a directory of your own"
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Sprintf("%s has mode %04o: others could reach in", dir, info.Mode().Perm()), "chmod 700 " + dir
	}
	return "", ""
}

// writable asks the kernel, which knows of read-only mounts as well (access(2)).
func writable(dir string) error {
	const write, search = 2, 1
	return syscall.Access(dir, write|search)
}
