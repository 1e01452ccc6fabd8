package direct

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

// A console connects the user's terminal with a pseudo-terminal for one tool (pts(4)). The tool gets the slave and
// never the user's terminal, so input that it injects and settings that it changes (TIOCSTI, termios) stay on its side.
// Its output is passed through with escape sequences, as for any program.
type console struct {
	master, slave *os.File
	leave         func() // restores the user's terminal
	resized       chan os.Signal
	shown         sync.WaitGroup
	once          sync.Once
}

// openConsole sets the user's terminal to raw mode, so that every key, such as Ctrl-C, goes to the tool's terminal.
func openConsole(in, out *os.File) (*console, error) {
	c := &console{resized: make(chan os.Signal, 1)}
	if err := c.openPTY(); err != nil {
		return nil, err
	}
	before, ok := terminal.Get(in)
	if !ok {
		c.master.Close()
		c.slave.Close()
		return nil, errors.New("stdin is not a terminal")
	}
	Ioctl(c.slave, syscall.TCSETS, unsafe.Pointer(&before))
	c.copyWindowSize(in)
	signal.Notify(c.resized, syscall.SIGWINCH)
	c.leave = sync.OnceFunc(func() { terminal.Set(in, before) })
	after := rawMode(before)
	Ioctl(in, syscall.TCSETS, unsafe.Pointer(&after))
	// The wrapper hides that master is a file. io.Copy between two files copies in the kernel, which holds the master
	// while the user types nothing.
	go c.restoreOnPanic(func() { io.Copy(struct{ io.Writer }{c.master}, in) })
	go c.restoreOnPanic(func() {
		for range c.resized {
			c.copyWindowSize(in)
		}
	})
	c.shown.Go(func() { c.restoreOnPanic(func() { io.Copy(out, c.master) }) })
	return c, nil
}

// restoreOnPanic restores the terminal if do panics. Otherwise the user could not read the reason.
func (c *console) restoreOnPanic(do func()) {
	defer func() {
		if p := recover(); p != nil {
			c.leave()
			panic(p)
		}
	}()
	do()
}

// close waits for the last output of the tool and restores the terminal. Replies of the terminal that the tool did not
// read are dropped. Otherwise they would be input to the user's shell.
func (c *console) close() {
	c.once.Do(func() {
		c.slave.Close()
		c.master.SetReadDeadline(time.Now().Add(time.Second)) // the tool has exited, and EIO follows its last byte
		c.shown.Wait()
		signal.Stop(c.resized)
		close(c.resized)
		c.leave()
		c.master.Close()
	})
}

// openPTY opens a master and its slave. It opens the slave by descriptor and not by name, to get the right one
// (ioctl_tty(2), TIOCGPTPEER, Linux 4.13).
func (c *console) openPTY() (err error) {
	const peer = 0x5441 // TIOCGPTPEER, missing in package syscall
	if c.master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0); err != nil {
		return err
	}
	var locked int32
	err = Ioctl(c.master, syscall.TIOCSPTLCK, unsafe.Pointer(&locked))
	var fd uintptr
	if err == nil {
		fd, err = controlFD(c.master, func(m uintptr) (uintptr, uintptr, syscall.Errno) {
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

// copyWindowSize copies the window size from the user's terminal to the tool's. The kernel notifies the tool.
func (c *console) copyWindowSize(from *os.File) {
	var size [4]uint16 // struct winsize
	if Ioctl(from, syscall.TIOCGWINSZ, unsafe.Pointer(&size)) == nil {
		Ioctl(c.master, syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	}
}

// rawMode returns t in raw mode: every byte passes unchanged, at once and without echo (termios(3), "Raw mode").
func rawMode(t syscall.Termios) syscall.Termios {
	t.Iflag &^= syscall.IGNBRK | syscall.BRKINT | syscall.PARMRK | syscall.ISTRIP | syscall.INLCR | syscall.IGNCR | syscall.ICRNL | syscall.IXON
	t.Oflag &^= syscall.OPOST
	t.Lflag &^= syscall.ECHO | syscall.ECHONL | syscall.ICANON | syscall.ISIG | syscall.IEXTEN
	t.Cflag = t.Cflag&^(syscall.CSIZE|syscall.PARENB) | syscall.CS8
	t.Cc[syscall.VMIN], t.Cc[syscall.VTIME] = 1, 0
	return t
}

// Ioctl calls ioctl(2) on f and returns its errno as the error. It does not change the blocking mode of f.
func Ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	_, err := controlFD(f, func(fd uintptr) (uintptr, uintptr, syscall.Errno) {
		return syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(arg))
	})
	return err
}

// controlFD keeps the mode of the file. Fd would make reads of the master block past a deadline.
func controlFD(f *os.File, do func(fd uintptr) (uintptr, uintptr, syscall.Errno)) (uintptr, error) {
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
