package jail

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// follow sees the tool of a helper's cage to its end, and returns when nothing of it lives. The ending has started
// when the tool may have been executed. The caller's own thread waits for the helper and reads what the tool
// writes: to hand these over to other goroutines would take as long as all else that a warm call does.
func (h *helper) follow(ctx context.Context, p *pipes, s bailey.Streams, timeout time.Duration) (e ending) {
	guard := watchOver(ctx, h, timeout)
	o := outlets{to: [2]io.Writer{s.Stdout, s.Stderr}}
	fds := []unix.PollFd{{Fd: rawOf(h.stream)}, {Fd: rawOf(p.outer[1])}, {Fd: rawOf(p.outer[2])}}
	for i := range fds {
		fds[i].Events = unix.POLLIN
	}
	for over := false; !over; {
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			h.spoilt, e.started, over = err, true, true
		}
		if !over && fds[0].Revents != 0 {
			over = h.hear(&e)
			guard.stands()
		}
		for i, f := range fds[1:] {
			if f.Revents != 0 && !over && o.read(int(f.Fd), i) == readEnd {
				fds[1+i].Fd = -1 // poll(2): ignored
			}
		}
	}
	e.timedOut, e.cancelled = guard.dismiss()
	if h.spoilt == nil && !h.lists.empty() {
		h.spoilt = h.clear()
	}
	if h.spoilt != nil && e.started {
		h.process.Kill()
		h.process.Wait() // returns when all that it started is gone
		e.started = e.exited || h.read()
	}
	for i, f := range fds[1:] { // nobody writes any more, so what is there is all
		for f.Fd >= 0 && o.read(int(f.Fd), i) == readSome {
		}
	}
	e.over = h.hold.(*cgroup).over()
	h.mail.Close()
	h.mail = nil
	return e
}

// hear takes one report of the helper's. It is true when the tool has ended. A helper that says nothing more may have
// been killed after the tool began.
func (h *helper) hear(e *ending) (over bool) {
	if !h.parked {
		h.spoilt = h.park()
		e.started = h.spoilt != nil && !errors.Is(h.spoilt, errUnbuilt) // it may have begun before the helper could say so
		return h.spoilt != nil
	}
	kind, x, y, err := h.report()
	switch {
	case err == nil && kind == inside.Exited:
		e.started, e.exited, e.status, e.cpu = true, true, syscall.WaitStatus(x), time.Duration(y)*time.Microsecond
	case err == nil && kind == inside.Unused:
	case err == nil && kind == inside.Failed:
		h.spoilt = fmt.Errorf("%w: step %d, %w", errUnbuilt, x, unix.Errno(y))
	default:
		h.spoilt, e.started = errors.New("the helper ended during a call"), true
	}
	return true
}

// read tells whether the mail was read by what is gone now: the end of a socket with messages in it is ECONNRESET at
// the other (unix(7)). Mail that nobody read is no call that has begun.
func (h *helper) read() bool {
	_, _, err := unix.Recvfrom(int(rawOf(h.mail)), nil, unix.MSG_DONTWAIT)
	return err != unix.ECONNRESET
}

// outlets take what a tool writes.
type outlets struct {
	to [2]io.Writer
	b  []byte
}

// What a read has come to.
const (
	readSome = iota
	readNone
	readEnd
)

// read takes some of what there is, whatever becomes of the writer: a tool must not block because nobody listens.
func (o *outlets) read(fd, which int) int {
	if o.b == nil {
		o.b = make([]byte, 32<<10)
	}
	n, err := unix.Read(fd, o.b)
	switch {
	case err == unix.EINTR:
		return readSome
	case err == unix.EAGAIN:
		return readNone
	case err != nil || n <= 0:
		return readEnd
	}
	if w := o.to[which]; w != nil {
		if _, err := w.Write(o.b[:n]); err != nil {
			o.to[which] = nil
		}
	}
	return readSome
}

// rawOf is a file's descriptor, which stays as it is: Fd would have it block.
func rawOf(f *os.File) (fd int32) {
	if raw, err := f.SyscallConn(); err == nil {
		raw.Control(func(n uintptr) { fd = int32(n) })
	}
	return fd
}

// A guard ends a call when its time is up or its context is done. It acts on the helper only until dismissed: the
// next call is not its own.
type guard struct {
	mu                  sync.Mutex
	helper              *helper // nil once dismissed
	stream              int32   // the helper's
	parked              bool    // the cage stands
	timedOut, cancelled bool
	timer               *time.Timer
	quit                func() bool
}

func watchOver(ctx context.Context, h *helper, timeout time.Duration) *guard {
	g := &guard{helper: h, parked: h.parked, stream: rawOf(h.stream)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer = time.AfterFunc(timeout, func() {
		g.act(func() { g.timedOut = true; g.urge() })
	})
	g.quit = context.AfterFunc(ctx, func() {
		g.act(func() {
			g.cancelled = true
			if errors.As(context.Cause(ctx), new(bailey.Gentle)) {
				g.urge()
			} else {
				g.helper.process.Kill()
			}
		})
	})
	return g
}

// act does something to a call that has not ended. One that has, and whose end nobody has heard yet because a slow
// writer holds them up, is left alone; what the helper says may also be that it begins, so it is looked at again.
func (g *guard) act(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.helper == nil {
		return
	}
	said := []unix.PollFd{{Fd: g.stream, Events: unix.POLLIN}}
	if n, _ := unix.Poll(said, 0); n > 0 {
		time.AfterFunc(lookAgain, func() { g.act(f) })
		return
	}
	f()
}

const lookAgain = 20 * time.Millisecond

// stands is told when the cage does.
func (g *guard) stands() {
	g.mu.Lock()
	g.parked = true
	g.mu.Unlock()
}

// urge has the tool asked to end, and ended when it does not. One that is not there yet shall not come.
func (g *guard) urge() {
	if !g.parked {
		g.helper.process.Kill()
		return
	}
	g.helper.leash.Write([]byte{inside.Term})
	g.timer.Stop()
	g.timer = time.AfterFunc(g.helper.times.grace, func() {
		g.act(func() { g.helper.process.Kill() })
	})
}

func (g *guard) dismiss() (timedOut, cancelled bool) {
	g.quit()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer.Stop()
	g.helper = nil
	return g.timedOut, g.cancelled
}

// report reads what the helper says next, which comes soon or not at all: one that its last tool has turned must hold
// up neither this call nor the next.
func (h *helper) report() (kind byte, x, y uint32, err error) {
	var b [inside.ReportSize]byte
	h.stream.SetReadDeadline(time.Now().Add(h.times.answer))
	_, err = io.ReadFull(h.stream, b[:])
	return b[0], binary.LittleEndian.Uint32(b[1:]), binary.LittleEndian.Uint32(b[5:]), err
}
