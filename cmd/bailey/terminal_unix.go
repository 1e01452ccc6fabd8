//go:build linux || darwin

package main

import (
	"os"
	"syscall"
	"unsafe"
)

// isTerminal reports whether f is a terminal; see ioctl_tty(2).
func isTerminal(f *os.File) bool {
	_, ok := termios(f)
	return ok
}

// controlling is the terminal that controls this process, wherever its streams lead (tty(4)).
func controlling() (*os.File, error) { return os.OpenFile("/dev/tty", os.O_RDWR, 0) }

func termios(f *os.File) (t syscall.Termios, ok bool) {
	_, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), getTermios, uintptr(unsafe.Pointer(&t)))
	return t, e == 0
}

// oneByOne makes a terminal hand over each key at once, without echo, and forget what was typed before.
// restore undoes it and forgets what is left. Anything but a terminal stays as it is.
func oneByOne(f *os.File) (restore func()) {
	before, ok := termios(f)
	if !ok {
		return func() {}
	}
	t := before
	t.Lflag &^= syscall.ICANON | syscall.ECHO
	t.Cc[syscall.VMIN], t.Cc[syscall.VTIME] = 1, 0
	setTermios(f, t)
	return func() { setTermios(f, before) }
}

func setTermios(f *os.File, t syscall.Termios) {
	syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), flushTermios, uintptr(unsafe.Pointer(&t)))
}
