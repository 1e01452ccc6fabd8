//go:build linux || darwin

package wire

import (
	"os"
	"syscall"
)

const noFollow = syscall.O_NOFOLLOW // a link in the home leads nowhere (open(2))

// detach puts a gateway into a session of its own and gives it the descriptor ready, as the number it returns.
func detach(attr *os.ProcAttr, ready *os.File) (string, error) {
	attr.Files = append(attr.Files, ready)
	attr.Sys = &syscall.SysProcAttr{Setsid: true}
	return "3", nil
}

// Inherited is the descriptor that a starting client waits on, nil when number says none. It goes no further.
func Inherited(number string) *os.File {
	if number != "3" {
		return nil
	}
	syscall.CloseOnExec(3)
	return os.NewFile(3, "ready")
}

// variable is a variable's name as it is compared.
func variable(name string) string { return name }

// inheritsHere lists what no other system has: nothing.
func inheritsHere(string) bool { return false }

// LockFile takes an exclusive flock(2) on path, at once or not at all (EWOULDBLOCK); it ends with unlock or with the process.
func LockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
