//go:build linux || darwin

package terminal

import (
	"os"
	"syscall"
	"unsafe"
)

// Is reports whether f is a terminal; see ioctl_tty(2).
func Is(f *os.File) bool {
	_, ok := Get(f)
	return ok
}

// Controlling is the terminal that controls this process, wherever its streams lead (tty(4)).
func Controlling() (*os.File, error) { return os.OpenFile("/dev/tty", os.O_RDWR, 0) }

// Get is how a terminal is set, false of what is none.
func Get(f *os.File) (t syscall.Termios, ok bool) {
	_, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), getTermios, uintptr(unsafe.Pointer(&t)))
	return t, e == 0
}

// OneByOne makes a terminal hand over each key at once, without echo, and forget what was typed before.
// restore undoes it and forgets what is left. Anything but a terminal stays as it is.
func OneByOne(f *os.File) (restore func()) {
	before, ok := Get(f)
	if !ok {
		return func() {}
	}
	t := before
	t.Lflag &^= syscall.ICANON | syscall.ECHO
	t.Cc[syscall.VMIN], t.Cc[syscall.VTIME] = 1, 0
	Set(f, t)
	return func() { Set(f, before) }
}

// Set sets it, and forgets what was typed before.
func Set(f *os.File, t syscall.Termios) {
	syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), flushTermios, uintptr(unsafe.Pointer(&t)))
}
