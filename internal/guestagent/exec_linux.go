package guestagent

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/guestwire"
)

const (
	// lingering is how long a process may be silent that a command has left behind with its output, before the output
	// of the command counts as complete.
	lingering = 200 * time.Millisecond
	// maxLeft bounds the output after the end of a command. It must be at least the largest pipe.
	maxLeft = 1 << 20
)

// runCommand runs a command with streams to its end.
func (st *stream) runCommand(c *guestwire.Command) (guestwire.Message, error) {
	s, err := openStreams(c)
	if err != nil {
		return nil, bailey.Unavailable.Wrapf(err, "End other processes in the sandbox.", "cannot open the streams of a command: %v", err)
	}
	defer s.closeAll()
	p, err := st.s.a.procs.startProcess(c, s.child, st.ctx.Done())
	s.closeChild()
	if err != nil {
		return nil, err
	}
	var copies sync.WaitGroup
	for channel, out := range map[guestwire.Channel]*output{guestwire.Stdout: s.stdout, guestwire.Stderr: s.stderr} {
		if out != nil {
			copies.Go(func() { st.sendOutput(channel, out) })
		}
	}
	if s.stdin != nil {
		go st.receiveInput(s, c.PTY)
	}
	exit := st.awaitExit(p, c, s)
	for _, out := range []*output{s.stdout, s.stderr} {
		if out != nil {
			out.commandEnded()
		}
	}
	copies.Wait()
	return &exit, nil
}

func (st *stream) sendOutput(channel guestwire.Channel, out *output) {
	head := []byte{byte(channel)}
	st.out[channel].CopyFrom(out, func(b []byte) error {
		err := st.s.sendFrame(guestwire.KindData, st.id, head, b)
		if err != nil { // the connection is gone, which the reader of frames may see later
			st.cancel()
		}
		return err
	})
	out.f.Close() // if the host does not take the output, the command must not wait for it
}

func (st *stream) receiveInput(s *streams, terminal bool) {
	err := st.in.CopyTo(s.stdin, func(n uint32) error {
		return st.s.sendFrame(guestwire.KindCredit, st.id, guestwire.CreditPayload(guestwire.Stdin, n))
	})
	switch {
	case !terminal:
		s.stdin.Close()
	case err == nil:
		s.stdin.Write([]byte{4}) // the key that ends the input, termios(3), VEOF
	}
}

// awaitExit returns how the command ended. It kills the process group if the time is up or the host cancels.
func (st *stream) awaitExit(p *process, c *guestwire.Command, s *streams) guestwire.Exit {
	procs, cancelled, timedOut := st.s.a.procs, st.ctx.Done(), false
	deadline := deadlineOf(c)
	for {
		select {
		case <-p.done:
			exit := exitOf(p.status)
			exit.TimedOut = timedOut
			return exit
		case n := <-st.signals:
			procs.signalGroup(p, n)
		case z := <-st.sizes:
			if c.PTY {
				s.setSize(z.Rows, z.Cols)
			}
		case <-deadline:
			timedOut, deadline = true, nil
			procs.signalGroup(p, uint32(unix.SIGKILL))
		case <-cancelled:
			cancelled = nil
			procs.signalGroup(p, uint32(unix.SIGKILL))
		}
	}
}

// deadlineOf returns a channel that receives when the command's time is up, or nil.
func deadlineOf(c *guestwire.Command) <-chan time.Time {
	if c.Millis == 0 {
		return nil
	}
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.After(time.Duration(min(c.Millis, most)) * time.Millisecond)
}

// streams are the standard streams of a command: the child's ends and ours.
type streams struct {
	child          [3]*os.File
	stdin          *os.File // nil if the input is empty
	stdout, stderr *output
}

func (s *streams) closeChild() {
	for _, f := range s.child {
		if f != nil {
			f.Close()
		}
	}
}

func (s *streams) closeAll() {
	s.closeChild()
	if s.stdin != nil {
		s.stdin.Close()
	}
	for _, out := range []*output{s.stdout, s.stderr} {
		if out != nil {
			out.f.Close()
		}
	}
}

func openStreams(c *guestwire.Command) (s *streams, err error) {
	s = &streams{}
	defer func() {
		if err != nil {
			s.closeAll()
		}
	}()
	if c.PTY {
		return s, s.openTerminal(c)
	}
	if c.Input {
		s.child[0], s.stdin, err = os.Pipe()
	} else {
		s.child[0], err = os.Open(os.DevNull)
	}
	for i, out := range []**output{&s.stdout, &s.stderr} {
		if err != nil {
			return s, err
		}
		*out = &output{}
		(*out).f, s.child[i+1], err = os.Pipe()
	}
	return s, err
}

// openTerminal opens a pseudo-terminal, pty(7).
func (s *streams) openTerminal(c *guestwire.Command) error {
	master, err := os.OpenFile("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	s.stdin, s.stdout = master, &output{f: master}
	raw, err := master.SyscallConn() // Fd would make the reads block past Close
	if err != nil {
		return err
	}
	var slave int
	controlErr := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			slave, err = ioctlOpenPeer(fd)
		}
	})
	if err = errors.Join(controlErr, err); err != nil {
		return err
	}
	s.child[0] = os.NewFile(uintptr(slave), "tty")
	s.child[1], s.child[2] = s.child[0], s.child[0]
	return s.setSize(c.Rows, c.Cols)
}

// ioctlOpenPeer opens the other side, which works without /dev/pts.
func ioctlOpenPeer(fd uintptr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

func (s *streams) setSize(rows, cols uint32) error {
	raw, err := s.stdin.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(cols)})
	})
	return errors.Join(controlErr, err)
}

// output reads a command's output. After the end of the command, other processes may still have its other end: then it
// ends when they are silent, or have written maxLeft bytes.
type output struct {
	f     *os.File
	ended atomic.Bool
	left  int // bytes since the end
}

func (o *output) commandEnded() {
	o.ended.Store(true)
	o.f.SetReadDeadline(time.Now().Add(lingering)) // for a Read that waits already
}

func (o *output) Read(p []byte) (int, error) {
	ended := o.ended.Load()
	if ended {
		o.f.SetReadDeadline(time.Now().Add(lingering))
	}
	n, err := o.f.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) && n == 0 {
		n, err = o.readNow(p), nil
		if n == 0 {
			err = io.EOF
		}
	}
	if ended {
		o.left += n
	}
	if errors.Is(err, unix.EIO) || o.left > maxLeft { // a terminal without processes fails with EIO
		return n, io.EOF
	}
	return n, err
}

// readNow returns what is there. On a busy machine, a deadline can pass before a Read has looked.
func (o *output) readNow(p []byte) (n int) {
	o.f.SetReadDeadline(time.Time{})
	if raw, err := o.f.SyscallConn(); err == nil {
		raw.Read(func(fd uintptr) bool {
			n, _ = unix.Read(int(fd), p)
			return true
		})
	}
	return max(n, 0)
}
