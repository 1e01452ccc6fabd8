package jail

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// A helper is a warm helper (package inside, warm.go) as the gateway sees it. It belongs to the caller that has taken
// it.
type helper struct {
	child
	groups *cgroupManager
	digest string
	bounds bounds
	base   uint64   // address of its mailbox
	mounts *os.File // shows whether mounts changed since it was started
	calls  int
	spoilt error // why it can serve no call

	parked      bool        // a cage, or the rest of one, exists
	lists       *childLists // shows which processes live in the cage
	leash, mail *os.File    // of the armed cage; nil if none is armed

	ready chan struct{} // closed when it is armed or spoilt; ready and the fields below are guarded by warmth.mu
	taken bool
	used  time.Time
}

// startHelper starts a helper for a user, in a control group of its own, and makes it build the lasting part of its
// cage. The user leaves with it, or if the start fails.
func (w *helperPool) startHelper(digest string, b bounds, as user, steps []inside.Step, donated []*os.File) (*helper, error) {
	sum, err := hex.DecodeString(digest)
	mounts, merr := openMountTable()
	null, nerr := os.Open(os.DevNull)
	if err := errors.Join(err, merr, nerr); err != nil {
		as.releaseUser()
		closeAll([]*os.File{mounts, null})
		return nil, err
	}
	defer null.Close()
	c, err := w.jail.spawnAs(inside.Warm, as)
	if err != nil {
		mounts.Close()
		return nil, err
	}
	h := &helper{child: *c, digest: digest, bounds: b, mounts: mounts, ready: make(chan struct{})}
	if h.groups, err = w.jail.holder.openCgroups(); err == nil {
		err = h.sendAndVerifyPlan(sum, steps, append([]*os.File{null, null, null}, donated...))
	}
	if err != nil {
		h.closeAndWait()
		return nil, err
	}
	return h, nil
}

// sendAndVerifyPlan sends the plan and makes the helper prove that it runs this very program with this very plan.
func (h *helper) sendAndVerifyPlan(sum []byte, steps []inside.Step, files []*os.File) error {
	if err := h.applyBounds(h.bounds); err != nil {
		return err
	}
	message := inside.Encode(append(make([]byte, 4, 8<<10), sum...), steps)
	if len(message)-4 > inside.MaxBytes {
		return errors.New("the plan is too large")
	}
	binary.LittleEndian.PutUint32(message, uint32(len(message)-4))
	if err := sameProgram(h.process.Pid); err != nil {
		return err
	}
	h.child.sendRequest(message, files)
	kind, x, y, err := h.readReport()
	if err == nil && kind != inside.Ready {
		err = fmt.Errorf("step %d: %w", x, unix.Errno(y))
	}
	var back [inside.DigestSize]byte
	if err == nil {
		_, err = io.ReadFull(h.stream, back[:])
	}
	if err != nil {
		return fmt.Errorf("the helper built something other than planned: %w", err)
	}
	if !bytes.Equal(back[:], sum) {
		return errors.New("the helper has another plan than the requested one")
	}
	h.base = uint64(x) | uint64(y)<<32
	return nil
}

// sameProgram compares the executable of a process with that of this process.
func sameProgram(pid int) error {
	var theirs, ours unix.Stat_t
	if err := errors.Join(unix.Stat(fmt.Sprintf("/proc/%d/exe", pid), &theirs), unix.Stat(self, &ours)); err != nil {
		return err
	}
	if theirs.Dev != ours.Dev || theirs.Ino != ours.Ino {
		return errors.New("the helper runs another program")
	}
	return nil
}

func (h *helper) hasArmedCage() bool { return h.mail != nil }

// isReady reports whether the helper is ready, that is, not busy with its next cage.
func (h *helper) isReady() bool {
	select {
	case <-h.ready:
		return true
	default:
		return false
	}
}

// isUsable reports whether the helper can take a call now: the mounts that it shows must be current.
func (h *helper) isUsable() bool {
	return h.spoilt == nil && !hasMountChange(h.mounts)
}

// isWornOut reports whether it must be replaced.
func (h *helper) isWornOut() bool { return h.spoilt != nil || h.calls >= maxCalls }

// prepareNext gives the helper a control group that no call has used. If ahead is true, it also arms a cage in that group.
func (h *helper) prepareNext(ahead bool) {
	if h.hasArmedCage() {
		return // the last call did not use the cage
	}
	if h.spoilt = h.removeCage(); h.spoilt != nil {
		return
	}
	if h.calls > 0 {
		next, err := h.groups.createCgroup(h.process.Pid)
		if err == nil {
			err = next.setBounds(h.bounds)
			h.hold.stopEnforcing()
			h.hold = next
		}
		if h.spoilt = err; err != nil {
			return
		}
	}
	if ahead {
		if h.spoilt = h.armCage(); h.spoilt == nil {
			h.spoilt = h.waitUntilParked()
		}
	}
}

// armCage makes the helper build a cage with a pending tool in it.
func (h *helper) armCage() error {
	var pair [2]int
	leash, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	if pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0); err != nil {
		unix.Close(leash[0])
		unix.Close(leash[1])
		return os.NewSyscallError("socketpair", err)
	}
	h.leash, h.mail = os.NewFile(uintptr(leash[0]), "leash"), os.NewFile(uintptr(pair[0]), "mailbox")
	theirs := []*os.File{os.NewFile(uintptr(leash[1]), "leash"), os.NewFile(uintptr(pair[1]), "mailbox")}
	err = h.passFiles([]byte{inside.Arm}, theirs)
	closeAll(theirs)
	return err
}

// errUnbuilt marks a helper's own report that it has started no tool.
var errUnbuilt = errors.New("the helper could not build a jail")

// waitUntilParked waits until the armed cage has its pending tool, and opens the lists of the processes in it.
func (h *helper) waitUntilParked() error {
	if h.parked {
		return nil
	}
	kind, x, y, err := h.readReport()
	if err != nil {
		return err
	}
	switch kind {
	case inside.Parked:
	case inside.Failed:
		return fmt.Errorf("%w: step %d, %w", errUnbuilt, x, unix.Errno(y))
	default:
		return errors.New("the helper sent an unexpected message")
	}
	h.parked, h.lists = true, listsOf(h.process.Pid)
	return nil
}

// sendCall makes the pending tool, or one that is about to be pending, execute with the content of mail. It returns false
// if no part of it can reach the tool.
func (h *helper) sendCall(mail []byte, streams []*os.File) bool {
	if h.spoilt == nil {
		h.calls++
		h.spoilt = sendWithFiles(h.mail, mail, streams)
	}
	return h.spoilt == nil
}

// removeCage waits until the helper has removed the last cage.
func (h *helper) removeCage() error {
	if !h.parked {
		return nil
	}
	h.leash.Close() // ends PID 1, and with it all remaining processes
	h.leash = nil
	kind, _, _, err := h.readReport()
	if err == nil && kind != inside.Gone {
		err = errors.New("the helper did not remove its jail")
	}
	h.parked = false
	h.lists.close()
	h.lists = nil
	return err
}

// closeAndWait ends the helper and all processes that it started.
func (h *helper) closeAndWait() {
	for _, f := range []*os.File{h.leash, h.mail, h.mounts} {
		if f != nil {
			f.Close()
		}
	}
	h.lists.close()
	h.process.Kill()
	h.child.closeAndWait()
}

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

// childLists shows whether any process lives in a cage besides its PID 1, from the lists of children that the kernel keeps
// (proc_tid_children(5)): the helper's and that PID 1's. When a process ends, its children become PID 1's before its
// parent learns of it. So once the tool has ended, each process that it left descends from a child of PID 1, or from
// another child of the helper (clone(2), CLONE_PARENT), whose children become PID 1's as well. No child of PID 1 can
// become the helper's. So if first the helper has no other child, and then PID 1 has none, no process lives.
type childLists struct {
	helper, init int    // descriptors of the lists, -1 if not available
	first        []byte // PID 1, as the helper's list shows it if it is the only child
}

// listsOf must be called while the tool lives. If the lists are not available, no cage is ever seen as empty.
func listsOf(helper int) *childLists {
	s := &childLists{openChildren(helper), -1, nil}
	var b [256]byte
	if n := s.readList(s.helper, b[:]); n > 0 {
		if first, _, ok := bytes.Cut(b[:n], []byte(" ")); ok { // the oldest child comes first
			if pid, err := strconv.Atoi(string(first)); err == nil {
				s.init, s.first = openChildren(pid), append(first, ' ')
			}
		}
	}
	return s
}

func openChildren(pid int) int {
	name := strconv.Itoa(pid)
	fd, err := unix.Open("/proc/"+name+"/task/"+name+"/children", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

func (s *childLists) readList(fd int, b []byte) int {
	if fd < 0 {
		return -1
	}
	n, err := unix.Pread(fd, b, 0)
	if err != nil {
		return -1
	}
	return n
}

// isCageEmpty reports whether no process of a tool lives. The tool must have been reaped.
func (s *childLists) isCageEmpty() bool {
	if s == nil {
		return false
	}
	var b [256]byte
	n := s.readList(s.helper, b[:])
	if n != 0 && (n < 0 || !bytes.Equal(b[:n], s.first)) { // 0: PID 1, which ends last, was reaped too
		return false
	}
	return s.readList(s.init, b[:]) == 0
}

func (s *childLists) close() {
	if s == nil {
		return
	}
	for _, fd := range [...]int{s.helper, s.init} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
