package direct

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"unsafe"

	"bailey/internal/hostapi"
	"bailey/internal/terminal"
)

// openRaw makes a terminal pass every key on, and reports its sizes until restore.
func openRaw(in *os.File) (*rawTerminal, error) {
	before, ok := terminal.Get(in)
	if !ok {
		return nil, errors.New("standard input is not a terminal")
	}
	after := rawMode(before)
	if err := Ioctl(in, syscall.TCSETS, unsafe.Pointer(&after)); err != nil {
		return nil, err
	}
	r := &rawTerminal{size: windowSize(in), sizes: make(chan hostapi.Size, 1)}
	resized, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(resized, syscall.SIGWINCH)
	r.restore = sync.OnceFunc(func() {
		signal.Stop(resized)
		close(done)
		terminal.Set(in, before)
	})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-resized:
			}
			select {
			case r.sizes <- windowSize(in):
			case <-done:
				return
			}
		}
	}()
	return r, nil
}

// windowSize returns the size of a terminal, or a common one.
func windowSize(f *os.File) hostapi.Size {
	var size [4]uint16 // struct winsize
	if Ioctl(f, syscall.TIOCGWINSZ, unsafe.Pointer(&size)) != nil || size[0] == 0 || size[1] == 0 {
		return hostapi.Size{Rows: 24, Cols: 80}
	}
	return hostapi.Size{Rows: uint32(size[0]), Cols: uint32(size[1])}
}
