package jail

import (
	"io"
	"os"
	"os/exec"
	"time"

	"bailey"
)

// barePipes are the tool's streams: pipes or the null device, never a descriptor of the gateway.
type barePipes struct {
	inner  []*os.File  // the tool's ends
	outer  [3]*os.File // the gateway's ends; the first is nil without stdin
	drains int
	done   chan struct{}
}

func openBarePipes(cmd *exec.Cmd, s bailey.Streams) (*barePipes, error) {
	p := &barePipes{done: make(chan struct{}, 2)}
	for i := range 3 {
		if i == 0 && s.Stdin == nil {
			continue // os/exec gives it the null device
		}
		r, w, err := os.Pipe()
		if err != nil {
			p.handOver()
			p.waitAndClose()
			return nil, err
		}
		theirs := w
		p.outer[i] = r
		if i == 0 {
			theirs, p.outer[i] = r, w
		}
		p.inner = append(p.inner, theirs)
		switch i {
		case 0:
			cmd.Stdin = theirs
		case 1:
			cmd.Stdout = theirs
		case 2:
			cmd.Stderr = theirs
		}
	}
	return p, nil
}

// handOver closes the gateway's copies of the tool's ends.
func (p *barePipes) handOver() {
	for _, f := range p.inner {
		f.Close()
	}
}

// startCopying begins to copy the streams. If a writer fails, its stream is still read: a tool must not block for lack of a
// reader.
func (p *barePipes) startCopying(s bailey.Streams) {
	for i, w := range []io.Writer{1: s.Stdout, 2: s.Stderr} {
		if i == 0 {
			continue
		}
		p.drains++
		go func() {
			if w != nil {
				io.Copy(w, p.outer[i])
			}
			io.Copy(io.Discard, p.outer[i])
			p.done <- struct{}{}
		}()
	}
	if in := p.outer[0]; in != nil {
		go func() {
			io.Copy(in, s.Stdin)
			in.Close()
		}()
	}
}

// waitAndClose waits for the last bytes. If a process outside the group still holds a write end, the wait ends after
// bareDrain.
func (p *barePipes) waitAndClose() {
	late := time.After(bareDrain)
	closeOuter := func() {
		for _, f := range p.outer {
			if f != nil {
				f.Close()
			}
		}
	}
	for range p.drains {
		select {
		case <-p.done:
		case <-late:
			closeOuter()
			<-p.done
		}
	}
	closeOuter()
}
