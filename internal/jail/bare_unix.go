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

// programSuffix ends the file name of every program.
const programSuffix = ""

func bareRunnable(info os.FileInfo) bool { return info.Mode().IsRegular() && info.Mode()&0o111 != 0 }

// onlyAdministrators refuses a canonical path that users other than root could have written or replaced. In a sticky
// directory, only its owner can replace an entry.
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
			return bailey.Denied.New(path+" is not run: users other than root can write "+p,
				"install the program as root, or take the write permission away: chmod go-w "+p)
		}
		if p == filepath.Dir(p) {
			return nil
		}
	}
}

// bareGroup is a program with its descendants, as long as they stay in its process group or, on Linux, in its session.
type bareGroup struct{ id int }

// bareLaunch starts cmd in a session of its own, without a terminal. Descriptors that were left open across exec, for
// example by the gateway's parent, are closed to it.
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
		return fmt.Errorf("cannot list open descriptors: %w", err)
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

// terminateAll asks the group to end, and kill ends it. The group id is not reused while a process of the group lives or the
// first one has not been reaped, as on Linux until kill. Elsewhere it could be reused between the end of the last
// process and kill, a matter of microseconds.
func (g bareGroup) terminateAll() {
	syscall.Kill(-g.id, syscall.SIGTERM)
	bareSession(g.id, syscall.SIGTERM)
}

func (g bareGroup) killAll() {
	syscall.Kill(-g.id, syscall.SIGKILL)
	bareSession(g.id, syscall.SIGKILL)
}

func (g bareGroup) closeHandle() {}

func bareExit(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok {
		return shellCode(ws)
	}
	return s.ExitCode()
}

// shellCode returns the exit code as a shell reports it: 128+n after signal n, for example 137 after SIGKILL.
func shellCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
