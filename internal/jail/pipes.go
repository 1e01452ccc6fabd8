package jail

import (
	"io"
	"os"
	"sync"
	"time"

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
	if s.Stdin == nil {
		p.inner[0], err = os.Open(os.DevNull)
	} else {
		p.inner[0], p.outer[0], err = makePipe(1)
	}
	for i := 1; i < 3 && err == nil; i++ {
		p.outer[i], p.inner[i], err = makePipe(0)
	}
	if err != nil {
		closeAll(p.inner[:])
		p.closeOwnEnds()
		return nil, err
	}
	return p, nil
}

// closeOwnEnds closes our ends; one that is closed already or absent is harmless.
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

// drainTime is how long output still in the pipes is read when no process of the run lives.
const drainTime = time.Second

// waitAndClose waits for the last bytes. No process of the run lives any more. If a process outside has a write end, for
// example one that got it through a socket in a place, the wait ends after drainTime.
func (p *pipes) waitAndClose() {
	late := time.AfterFunc(drainTime, p.closeOwnEnds)
	p.wait.Wait()
	late.Stop()
	p.closeOwnEnds()
}

func closeAll[C io.Closer](files []C) {
	for _, f := range files {
		f.Close()
	}
}
