//go:build linux || darwin

package jail

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"bailey"
)

// programSuffix ends every program's name.
const programSuffix = ""

func bareRunnable(info os.FileInfo) bool { return info.Mode().IsRegular() && info.Mode()&0o111 != 0 }

// onlyAdministrators refuses a canonical path that others than root could have written or replaced. A sticky
// directory keeps its entries to their owners.
func onlyAdministrators(path string) error {
	for p := path; ; p = filepath.Dir(p) {
		info, err := os.Lstat(p)
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		mode := info.Mode()
		shared := mode&0o002 != 0 || mode&0o020 != 0 && ok && st.Gid != 0
		if !ok || st.Uid != 0 || shared && !(info.IsDir() && mode&os.ModeSticky != 0) {
			return &bailey.Error{Kind: bailey.Denied, Message: path + " is not run: others than root can write " + p,
				Hint: "install the program as root, or take the write permission away: chmod go-w " + p}
		}
		if p == filepath.Dir(p) {
			return nil
		}
	}
}

// bareGroup is a program and what it started, as far as that stays in its process group, or on Linux its session.
type bareGroup struct{ id int }

// bareLaunch starts cmd in a session of its own, without a terminal. Descriptors that somebody left open across
// exec, the gateway's own parent maybe, are closed to it.
func bareLaunch(cmd *exec.Cmd) (bareGroup, error) {
	if err := bareSeal(); err != nil {
		return bareGroup{}, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return bareGroup{}, err
	}
	return bareGroup{cmd.Process.Pid}, nil
}

func bareSeal() error {
	open, err := os.ReadDir("/dev/fd")
	if err != nil {
		return fmt.Errorf("which descriptors are open cannot be told: %w", err)
	}
	var errs []error
	for _, d := range open {
		fd, err := strconv.Atoi(d.Name())
		if err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// term asks the group to end, kill ends it. The group's number is not given to another process while one of the
// group lives, or its first one was not waited for, as on Linux until kill; elsewhere it could be between the last
// one's end and kill, which is a matter of microseconds.
func (g bareGroup) term() {
	syscall.Kill(-g.id, syscall.SIGTERM)
	bareSession(g.id, syscall.SIGTERM)
}

func (g bareGroup) kill() {
	syscall.Kill(-g.id, syscall.SIGKILL)
	bareSession(g.id, syscall.SIGKILL)
}

func (g bareGroup) release() {}

// bareExit is how a shell would say it: 128+n after signal n.
func bareExit(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}
