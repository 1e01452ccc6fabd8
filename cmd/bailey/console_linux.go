package main

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"bailey/internal/terminal"
)

// A console joins a person's terminal with a pseudo-terminal made for one tool (pts(4)). The tool has the slave and
// never the person's own: what it pushes back or changes (TIOCSTI, termios) stays on its side. What it writes passes
// through, escape sequences too, as from any program.
type console struct {
	master, slave *os.File
	leave         func() // makes the person's terminal what it was
	resized       chan os.Signal
	shown         sync.WaitGroup
	once          sync.Once
}

// openConsole makes the person's terminal raw, so that each key goes to the tool's, Ctrl-C among them.
func openConsole(in, out *os.File) (*console, error) {
	c := &console{resized: make(chan os.Signal, 1)}
	if err := c.pair(); err != nil {
		return nil, err
	}
	before, ok := terminal.Get(in)
	if !ok {
		c.master.Close()
		c.slave.Close()
		return nil, errors.New("stdin is no terminal")
	}
	ioctl(c.slave, syscall.TCSETS, unsafe.Pointer(&before))
	c.resize(in)
	signal.Notify(c.resized, syscall.SIGWINCH)
	c.leave = sync.OnceFunc(func() { terminal.Set(in, before) })
	after := raw(before)
	ioctl(in, syscall.TCSETS, unsafe.Pointer(&after))
	// As a mere Writer: the copying inside the kernel that two files would get holds the master while nobody types.
	go c.guard(func() { io.Copy(struct{ io.Writer }{c.master}, in) })
	go c.guard(func() {
		for range c.resized {
			c.resize(in)
		}
	})
	c.shown.Go(func() { c.guard(func() { io.Copy(out, c.master) }) })
	return c, nil
}

// guard leaves the terminal as it was when something breaks: a person could not read why otherwise.
func (c *console) guard(do func()) {
	defer func() {
		if p := recover(); p != nil {
			c.leave()
			panic(p)
		}
	}()
	do()
}

// close waits for what the tool wrote last and gives the terminal back. What a terminal answered to the tool and
// nobody read is dropped: it would be typed into the person's shell.
func (c *console) close() {
	c.once.Do(func() {
		c.slave.Close()
		c.master.SetReadDeadline(time.Now().Add(time.Second)) // the tool is gone, and EIO follows its last byte
		c.shown.Wait()
		signal.Stop(c.resized)
		close(c.resized)
		c.leave()
		c.master.Close()
	})
}

// pair opens a master and its slave: by descriptor and not by name, so that it is the right one
// (ioctl_tty(2), TIOCGPTPEER, Linux 4.13).
func (c *console) pair() (err error) {
	const peer = 0x5441 // TIOCGPTPEER; package syscall lacks it
	if c.master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0); err != nil {
		return err
	}
	var locked int32
	err = ioctl(c.master, syscall.TIOCSPTLCK, unsafe.Pointer(&locked))
	var fd uintptr
	if err == nil {
		fd, err = control(c.master, func(m uintptr) (uintptr, uintptr, syscall.Errno) {
			return syscall.Syscall(syscall.SYS_IOCTL, m, peer, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC)
		})
	}
	if err != nil {
		c.master.Close()
		return os.NewSyscallError("ioctl", err)
	}
	c.slave = os.NewFile(fd, "slave")
	return nil
}

// resize gives the tool's terminal the size of the person's; the kernel tells the tool.
func (c *console) resize(from *os.File) {
	var size [4]uint16 // struct winsize
	if ioctl(from, syscall.TIOCGWINSZ, unsafe.Pointer(&size)) == nil {
		ioctl(c.master, syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	}
}

// raw passes every byte as it is, at once and without echo (terminal.Get(3), "Raw mode").
func raw(t syscall.Termios) syscall.Termios {
	t.Iflag &^= syscall.IGNBRK | syscall.BRKINT | syscall.PARMRK | syscall.ISTRIP | syscall.INLCR | syscall.IGNCR | syscall.ICRNL | syscall.IXON
	t.Oflag &^= syscall.OPOST
	t.Lflag &^= syscall.ECHO | syscall.ECHONL | syscall.ICANON | syscall.ISIG | syscall.IEXTEN
	t.Cflag = t.Cflag&^(syscall.CSIZE|syscall.PARENB) | syscall.CS8
	t.Cc[syscall.VMIN], t.Cc[syscall.VTIME] = 1, 0
	return t
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	_, err := control(f, func(fd uintptr) (uintptr, uintptr, syscall.Errno) {
		return syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(arg))
	})
	return err
}

// control keeps the file as it is: Fd would make the master's reads block past a deadline.
func control(f *os.File, do func(fd uintptr) (uintptr, uintptr, syscall.Errno)) (uintptr, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var r uintptr
	var errno syscall.Errno
	if err := conn.Control(func(fd uintptr) { r, _, errno = do(fd) }); err != nil {
		return 0, err
	}
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}
