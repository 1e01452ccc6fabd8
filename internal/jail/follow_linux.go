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

// waitForTool waits for the tool in a helper's cage and returns when no process of it lives. The ending has started set if
// the tool may have been executed. The calling thread itself waits for the helper and reads the tool's output: handing
// that to other goroutines would take as long as the rest of a warm call.
func (h *helper) waitForTool(ctx context.Context, p *pipes, s bailey.Streams, timeout time.Duration) (e cageResult) {
	guard := watchOver(ctx, h, timeout)
	o := outputCopier{to: [2]io.Writer{s.Stdout, s.Stderr}}
	fds := []unix.PollFd{{Fd: rawOf(h.stream)}, {Fd: rawOf(p.outer[1])}, {Fd: rawOf(p.outer[2])}}
	for i := range fds {
		fds[i].Events = unix.POLLIN
	}
	for over := false; !over; {
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			h.spoilt, e.started, over = err, true, true
		}
		if !over && fds[0].Revents != 0 {
			over = h.handleReport(&e)
			guard.markBuilt()
		}
		for i, f := range fds[1:] {
			if f.Revents != 0 && !over && o.copyAvailable(int(f.Fd), i) == readEnd {
				fds[1+i].Fd = -1 // poll(2) ignores it
			}
		}
	}
	e.timedOut, e.cancelled = guard.stopWatching()
	if h.spoilt == nil && !h.lists.isCageEmpty() {
		h.spoilt = h.removeCage()
	}
	if h.spoilt != nil && e.started {
		h.process.Kill()
		h.process.Wait() // returns when all processes that it started are gone
		e.started = e.exited || h.isMailRead()
	}
	for i, f := range fds[1:] { // no writer is left, so the remaining output is complete
		for f.Fd >= 0 && o.copyAvailable(int(f.Fd), i) == readSome {
		}
	}
	e.over = h.hold.(*cgroup).exceededBound()
	h.mail.Close()
	h.mail = nil
	return e
}

// handleReport reads one report of the helper, and returns true if the tool has ended. If the helper ends without a report, it
// may have been killed after the tool began.
func (h *helper) handleReport(e *cageResult) (over bool) {
	if !h.parked {
		h.spoilt = h.waitUntilParked()
		// it may have begun before the helper could report it
		e.started = h.spoilt != nil && !errors.Is(h.spoilt, errUnbuilt)
		return h.spoilt != nil
	}
	kind, x, y, err := h.readReport()
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

// isMailRead reports whether the mail was read by the processes that are gone now: if a socket closes with unread messages,
// its peer gets ECONNRESET (unix(7)). If the mail was not read, the call has not begun.
//
// A process that is just being started has a copy of the helper's end until it executes its program (fork(2)). Until
// then the socket has no end, so read waits for it, at most closing.
func (h *helper) isMailRead() bool {
	fd := rawOf(h.mail)
	for start := time.Now(); ; {
		_, _, err := unix.Recvfrom(int(fd), nil, unix.MSG_DONTWAIT)
		if err != unix.EAGAIN && err != unix.EINTR || time.Since(start) > closing {
			return err != unix.ECONNRESET
		}
		unix.Poll([]unix.PollFd{{Fd: fd}}, 10) // returns when the other end is closed
	}
}

const closing = time.Second

// outputCopier take the output of a tool.
type outputCopier struct {
	to [2]io.Writer
	b  []byte
}

// Results of a read.
const (
	readSome = iota
	readNone
	readEnd
)

// copyAvailable reads some of the available output, even if the writer has failed: a tool must not block for lack of a reader.
func (o *outputCopier) copyAvailable(fd, which int) int {
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

// rawOf returns a file's descriptor without a change of its mode: Fd would make it blocking.
func rawOf(f *os.File) (fd int32) {
	if raw, err := f.SyscallConn(); err == nil {
		raw.Control(func(n uintptr) { fd = int32(n) })
	}
	return fd
}

// A guard ends a call if its time is up or its context is done. It must not act on the helper after it was dismissed:
// the next call has its own guard.
type guard struct {
	mu                  sync.Mutex
	helper              *helper // nil once dismissed
	stream              int32   // of the helper
	parked              bool    // the cage is built
	timedOut, cancelled bool
	timer               *time.Timer
	quit                func() bool
}

func watchOver(ctx context.Context, h *helper, timeout time.Duration) *guard {
	g := &guard{helper: h, parked: h.parked, stream: rawOf(h.stream)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer = time.AfterFunc(timeout, func() {
		g.actIfRunning(func() { g.timedOut = true; g.terminateTool() })
	})
	g.quit = context.AfterFunc(ctx, func() {
		g.actIfRunning(func() {
			g.cancelled = true
			if errors.As(context.Cause(ctx), new(bailey.Gentle)) {
				g.terminateTool()
			} else {
				g.helper.process.Kill()
			}
		})
	})
	return g
}

// actIfRunning applies f to a call that has not ended. If the call has ended and a slow writer delays the reading of that
// report, act must leave it alone. An unread report may also say that the call begins, so act checks again after
// lookAgain.
func (g *guard) actIfRunning(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.helper == nil {
		return
	}
	said := []unix.PollFd{{Fd: g.stream, Events: unix.POLLIN}}
	if n, _ := unix.Poll(said, 0); n > 0 {
		time.AfterFunc(lookAgain, func() { g.actIfRunning(f) })
		return
	}
	f()
}

const lookAgain = 20 * time.Millisecond

// markBuilt records that the cage is built.
func (g *guard) markBuilt() {
	g.mu.Lock()
	g.parked = true
	g.mu.Unlock()
}

// terminateTool sends SIGTERM to the tool, and ends it after the grace time. If the tool does not exist yet, the helper is
// killed, so that it never starts.
func (g *guard) terminateTool() {
	if !g.parked {
		g.helper.process.Kill()
		return
	}
	g.helper.leash.Write([]byte{inside.Term})
	g.timer.Stop()
	g.timer = time.AfterFunc(g.helper.times.grace, func() {
		g.actIfRunning(func() { g.helper.process.Kill() })
	})
}

func (g *guard) stopWatching() (timedOut, cancelled bool) {
	g.quit()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer.Stop()
	g.helper = nil
	return g.timedOut, g.cancelled
}

// readReport reads the helper's next report. It waits only for a limited time: a helper that its last tool has compromised
// must delay neither this call nor the next.
func (h *helper) readReport() (kind byte, x, y uint32, err error) {
	var b [inside.ReportSize]byte
	h.stream.SetReadDeadline(time.Now().Add(h.times.answer))
	_, err = io.ReadFull(h.stream, b[:])
	return b[0], binary.LittleEndian.Uint32(b[1:]), binary.LittleEndian.Uint32(b[5:]), err
}
