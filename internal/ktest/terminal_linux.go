package ktest

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"
)

// Screen is what a person at a terminal sees.
type Screen struct {
	mu    sync.Mutex
	shown bytes.Buffer
	Asked chan struct{} // closed when the first question was asked
}

// NewScreen returns an empty screen.
func NewScreen() *Screen { return &Screen{Asked: make(chan struct{})} }

// Text returns all output so far.
func (s *Screen) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

// Watch reads until the last writer has closed the terminal (EIO).
func (s *Screen) Watch(master *os.File) {
	b := make([]byte, 4096)
	var once sync.Once
	for {
		n, err := master.Read(b)
		s.mu.Lock()
		s.shown.Write(b[:n])
		s.mu.Unlock()
		if strings.Contains(s.Text(), "[y/N] ") {
			once.Do(func() { close(s.Asked) })
		}
		if err != nil {
			return
		}
	}
}

// PTY opens a pseudo-terminal (pty(7)).
func PTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	Require(t, "pty")
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	raw, err := master.SyscallConn() // Fd would make its reads block past Close
	if err != nil {
		t.Fatal(err)
	}
	var n, unlocked int32
	var failed syscall.Errno
	raw.Control(func(fd uintptr) {
		if _, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGPTN,
			uintptr(unsafe.Pointer(&n))); failed == 0 {
			_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCSPTLCK,
				uintptr(unsafe.Pointer(&unlocked)))
		}
	})
	if failed != 0 {
		t.Fatal(failed)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}
