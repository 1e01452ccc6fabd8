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

// Controlling opens the terminal that controls this process, even if its streams are redirected (tty(4)).
func Controlling() (*os.File, error) { return os.OpenFile("/dev/tty", os.O_RDWR, 0) }

// Get returns the settings of a terminal. ok is false if f is not a terminal.
func Get(f *os.File) (t syscall.Termios, ok bool) {
	_, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), getTermios, uintptr(unsafe.Pointer(&t)))
	return t, e == 0
}

// Height returns the number of lines of a terminal, or 0 if f is none.
func Height(f *os.File) int {
	var size struct{ rows, columns, x, y uint16 }
	_, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	if e != 0 {
		return 0
	}
	return int(size.rows)
}

// OneByOne makes a terminal deliver each key at once, without echo, and discards pending input. restore undoes this and
// discards pending input again. If f is not a terminal, OneByOne does nothing.
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

// Set changes the settings of a terminal and discards pending input.
func Set(f *os.File, t syscall.Termios) {
	syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), flushTermios, uintptr(unsafe.Pointer(&t)))
}
