//go:build unix

package hooks

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

func runnable(info fs.FileInfo) bool { return info.Mode().IsRegular() && info.Mode()&0o111 != 0 }

// group is a program and what it started, as far as that stays in its process group.
type group struct{ id int }

// launch starts cmd in a session of its own, without a terminal. Descriptors that somebody left open across exec, the
// gateway's own parent maybe, are closed to it.
func launch(cmd *exec.Cmd) (group, error) {
	if err := seal(); err != nil {
		return group{}, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return group{}, err
	}
	return group{cmd.Process.Pid}, nil
}

func seal() error {
	open, err := os.ReadDir("/dev/fd")
	errs := []error{err}
	for _, d := range open {
		fd, err := strconv.Atoi(d.Name())
		if err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// term asks the group to end, kill ends it. The group's number is given to no other process while one of the group lives.
func (g group) term() { syscall.Kill(-g.id, syscall.SIGTERM) }
func (g group) kill() { syscall.Kill(-g.id, syscall.SIGKILL) }

// code is how a shell would say it: 128+n after signal n.
func code(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}
