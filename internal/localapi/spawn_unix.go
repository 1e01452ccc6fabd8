//go:build linux || darwin

package localapi

import (
	"os"
	"syscall"
)

const noFollow = syscall.O_NOFOLLOW // a symlink in the home is not followed (open(2))

// detachProcess puts a gateway into its own session and passes it the descriptor ready, whose number it returns.
func detachProcess(attr *os.ProcAttr, ready *os.File) (string, error) {
	attr.Files = append(attr.Files, ready)
	attr.Sys = &syscall.SysProcAttr{Setsid: true}
	return "3", nil
}

// Inherited returns the descriptor on which a starting client waits, or nil if number names none. Child processes do
// not inherit it.
func Inherited(number string) *os.File {
	if number != "3" {
		return nil
	}
	syscall.CloseOnExec(3)
	return os.NewFile(3, "ready")
}

// foldVariable returns a variable's name in the form that is compared.
func foldVariable(name string) string { return name }

// inheritsHere has no variables on Unix.
func inheritsHere(string) bool { return false }

// LockFile takes an exclusive flock(2) on path, until unlock is called or the process ends. If another process holds
// it, LockFile returns EWOULDBLOCK at once.
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
