//go:build linux

package jail

import (
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
)

// pipes are the three standard streams of the tool. The tool must get ends of pipes or /dev/null, never a descriptor of
// the gateway: a terminal, a socket or a directory would be a hole in every layer.
//
// The one exception is a terminal that was made for this run alone, for a user who inspects the cage.
type pipes struct {
	inner [3]*os.File // the tool's ends: stdin, stdout, stderr
	outer [3]*os.File // ours; the first is nil without stdin, all are nil with a terminal
	wait  sync.WaitGroup
}

func openPipes(s bailey.Streams) (*pipes, error) {
	p := &pipes{}
	var err error
	switch {
	case s.TTY != nil:
		for i := 0; i < 3 && err == nil; i++ {
			p.inner[i], err = duplicateFile(s.TTY)
		}
	case s.Stdin == nil:
		p.inner[0], err = os.Open(os.DevNull)
	default:
		p.inner[0], p.outer[0], err = makePipe(1)
	}
	for i := 1; i < 3 && err == nil && s.TTY == nil; i++ {
		p.outer[i], p.inner[i], err = makePipe(0)
	}
	if err != nil {
		closeAll(p.inner[:])
		p.closeOwnEnds()
		return nil, err
	}
	return p, nil
}

// makePipe returns a read end and a write end. The end with index ours, 0 or 1, does not block, so that a deadline can
// interrupt it; the end of the tool blocks, as a tool expects.
func makePipe(ours int) (r, w *os.File, err error) {
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	unix.SetNonblock(fd[ours], true)
	return os.NewFile(uintptr(fd[0]), "pipe"), os.NewFile(uintptr(fd[1]), "pipe"), nil
}

// closeOwnEnds closes our ends if the run did not begin.
func (p *pipes) closeOwnEnds() { closeAll(p.outer[:]) }

// startReading starts to read the output of the tool.
func (p *pipes) startReading(s bailey.Streams) {
	for i, w := range []io.Writer{1: s.Stdout, 2: s.Stderr} {
		if i > 0 && p.outer[i] != nil {
			p.wait.Go(func() { copyAndDrain(w, p.outer[i]) })
		}
	}
}

// feedStdin starts to pass on standard input.
func (p *pipes) feedStdin(s bailey.Streams) {
	if in := p.outer[0]; in != nil {
		go func() {
			io.Copy(in, s.Stdin)
			in.Close()
		}()
	}
}

// copyAndDrain reads to the end even if w fails: a tool must not block because its output has no reader.
func copyAndDrain(w io.Writer, r *os.File) {
	b := make([]byte, 32<<10)
	for {
		n, err := r.Read(b)
		if n > 0 && w != nil {
			if _, werr := w.Write(b[:n]); werr != nil {
				w = nil
			}
		}
		if err != nil {
			return
		}
	}
}

// waitAndClose waits for the last bytes. No process of the run lives any more; if a write end was passed out of the cage
// through a socket in a place, the deadline ends the wait.
func (p *pipes) waitAndClose() {
	for _, f := range p.outer[1:] { // a closed or absent file returns an error without effect
		f.SetReadDeadline(time.Now().Add(drainTime))
	}
	p.wait.Wait()
	closeAll(p.outer[1:])
	if p.outer[0] != nil {
		p.outer[0].Close()
	}
}
