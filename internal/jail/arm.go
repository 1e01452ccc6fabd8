//go:build linux

package jail

import (
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bailey/internal/jail/inside"
)

// A jail keeps PID 1 processes armed: each is started in advance in its own namespaces, holds nothing, and waits for
// its start request. A call that finds one saves the clone and the start of this program, about 3 ms. Like every PID 1,
// it serves one call only. Its mount namespace is a copy of the gateway's, made at its start. If a mount has come or
// gone since then, it must be dismissed; otherwise its cage would show the old mounts.
//
// One waits, plus one for each call that came too soon after others to find one, for example in a chain of hooks. After
// a minute without a call only one is kept.

// For the lesser cage all this applies to the keeper instead of PID 1, except that mounts do not matter.

const (
	maxArmed = 8 // at the same time
	// lull is the time without a new call before another process is started while some wait: calls need the processor.
	lull = 10 * time.Millisecond
)

// A stock holds the processes that wait. Its zero value is ready.
type initPool struct {
	mu      sync.Mutex
	closed  bool            // guarded by mu, like all fields below
	waiting []preforkedInit // oldest first
	more    int             // how many must wait besides the first
	calls   int             // so far
	seen    int             // value of calls at the last check
	filling bool            // a refill is running
	busy    sync.WaitGroup  // refills and dismissals
	idle    *time.Timer     // ends those that are not needed
}

// preforkedInit is a PID 1 that waits. Its file shows whether mounts have changed since it was started.
type preforkedInit struct {
	*child
	mounts *os.File
}

// executeRequest makes one PID 1 execute a start request. files opens the descriptors that go with it, again for each attempt.
// If an armed PID 1 could not build its cage, nothing has run, so carry tries once more with a new one. out is nil if
// the cage has no network; sockets of a failed attempt are not reused.
func (j *Jail) executeRequest(ctx context.Context, p *plan, message []byte, files func(uid int) ([]*os.File, error),
	out *networkPeer, timeout time.Duration) (cageResult, error) {
	defer j.refillPool(p.lesser)
	if p.lesser {
		if err := j.enterSubreaper(); err != nil {
			return cageResult{}, err
		}
		defer j.leaveSubreaper()
	}
	built := j.waitForBuildSlot(ctx)
	defer built()
	deadline := time.Now().Add(timeout)
	if c := j.takePreforked(p.lesser); c != nil {
		c.out, c.built = out, built
		e, err := j.runChild(ctx, c, p.bounds, message, files, timeout)
		if err != nil || e.started || e.cancelled || e.timedOut {
			return e, err
		}
		out.dropListeners()
	}
	c, err := j.spawnChild(initName(p.lesser))
	if err != nil {
		return cageResult{}, err
	}
	c.out, c.built = out, built
	return j.runChild(ctx, c, p.bounds, message, files, time.Until(deadline))
}

// waitForBuildSlot waits until the call's cage may be built: if two hundred are built at once, each takes as long as all of them,
// and the time of its tool is up before the tool begins. The caller must call built when the cage is built. A cage that
// takes longer than buildTime, for example because a file system hangs, does not hold up other calls any more.
func (j *Jail) waitForBuildSlot(ctx context.Context) (built func()) {
	select {
	case j.building <- struct{}{}:
	case <-ctx.Done():
		return func() {}
	}
	leave := sync.OnceFunc(func() { <-j.building })
	late := time.AfterFunc(buildTime, leave)
	return func() { late.Stop(); leave() }
}

const (
	maxBuilding = 8 // concurrent builds per processor
	buildTime   = 5 * time.Second
)

// runChild bounds the child, opens the descriptors, follows the child to its end, and ends the processes that a keeper
// could not end.
func (j *Jail) runChild(ctx context.Context, c *child, b bounds, message []byte,
	files func(uid int) ([]*os.File, error), timeout time.Duration) (cageResult, error) {
	if err := c.applyBounds(b); err != nil {
		c.closeAndWait()
		return cageResult{}, err
	}
	with, err := files(c.user.uid)
	if err != nil {
		c.closeAndWait()
		return cageResult{}, err
	}
	e := c.runToEnd(ctx, message, with, timeout)
	if c.keeper && !e.orderly {
		j.gathering.Lock()
		endOrphans()
		j.gathering.Unlock()
	}
	return e, nil
}

// initName returns the name that starts a call's first process.
func initName(lesser bool) string {
	if lesser {
		return inside.Keeper
	}
	return inside.Name
}

// preforkChild starts a PID 1 in advance. If it cannot, the next call reports the reason.
func (j *Jail) preforkChild(lesser bool) bool {
	j.arming.Lock()
	defer j.arming.Unlock()
	// The file must be opened first, so that every later change is seen. It must stay out of the Go runtime's poller,
	// which would consume the only event.
	fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	a := preforkedInit{mounts: os.NewFile(uintptr(fd), "mountinfo")}
	if a.child, err = j.spawnChild(initName(lesser)); err != nil {
		a.mounts.Close()
		return false
	}
	return j.stock.addPreforked(a)
}

// takePreforked takes a PID 1 that waits or that is being started. It returns nil if none is available.
func (j *Jail) takePreforked(lesser bool) *child {
	c, none := j.stock.takeMatching(lesser, true)
	if none {
		j.arming.Lock() // takes no longer than starting another one
		defer j.arming.Unlock()
		c, _ = j.stock.takeMatching(lesser, false)
	}
	return c
}

// refillPool starts the missing processes in the background.
func (j *Jail) refillPool(lesser bool) {
	s := &j.stock
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.filling || s.closed {
		return
	}
	s.filling = true
	s.busy.Go(func() {
		for able := true; s.waitUntilNeeded(able); able = j.preforkChild(lesser) {
		}
	})
}

// waitUntilNeeded waits until another process must be started. It returns false if none is missing or none can be started.
func (s *initPool) waitUntilNeeded(able bool) bool {
	for {
		s.mu.Lock()
		missing := able && !s.closed && len(s.waiting) <= s.more
		now := len(s.waiting) == 0 || s.seen == s.calls
		s.filling, s.seen = missing, s.calls
		s.mu.Unlock()
		if !missing || now {
			return missing
		}
		time.Sleep(lull)
	}
}

// addPreforked adds a process to the stock, unless the jail was closed.
func (s *initPool) addPreforked(a preforkedInit) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.busy.Go(a.closeAndWait)
		return false
	}
	s.waiting = append(s.waiting, a)
	return true
}

// takeMatching returns a process that fits, or nil, and tells whether the stock was empty. It dismisses every process that it
// finds and that no longer fits. The first two calls, one of which is the probe of the host, do not change how many
// must wait.
func (s *initPool) takeMatching(lesser, call bool) (c *child, none bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if none = len(s.waiting) == 0 && !s.closed; call {
		if s.calls++; none && s.calls > 2 {
			s.more = min(s.more+1, maxArmed-1)
		}
		s.resetIdleTimer()
	}
	for c == nil && len(s.waiting) > 0 {
		a := s.waiting[0]
		s.waiting = s.waiting[1:]
		if hasMountChange(a.mounts) && !lesser || a.keeper != lesser {
			s.busy.Go(a.closeAndWait)
			continue
		}
		a.mounts.Close()
		c = a.child
	}
	return c, none
}

// resetIdleTimer makes the stock shrink to one if no call comes for idleTime.
func (s *initPool) resetIdleTimer() {
	switch {
	case s.closed:
	case s.idle == nil:
		s.idle = time.AfterFunc(idleTime, s.shrinkToOne)
	default:
		s.idle.Reset(idleTime)
	}
}

func (s *initPool) shrinkToOne() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.more = 0; !s.closed {
		s.trimTo(1)
	}
}

// trimTo dismisses all but the latest few. The caller must hold mu.
func (s *initPool) trimTo(few int) {
	for len(s.waiting) > few {
		s.busy.Go(s.waiting[0].closeAndWait)
		s.waiting = s.waiting[1:]
	}
}

// close dismisses all processes that wait.
func (s *initPool) close() {
	s.mu.Lock()
	s.closed = true
	if s.idle != nil {
		s.idle.Stop()
	}
	s.trimTo(0)
	s.mu.Unlock()
	s.busy.Wait()
}

// hasMountChange reports whether the mount table has changed since the file was opened (proc(5): poll(2) then returns an
// exceptional condition). If that cannot be determined, it returns true.
func hasMountChange(mountinfo *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(mountinfo.Fd()), Events: unix.POLLPRI}}
	n, err := unix.Poll(fds, 0)
	return n != 0 || err != nil
}

func (a preforkedInit) closeAndWait() {
	a.child.closeAndWait()
	a.mounts.Close()
}

// closeAndWait ends a PID 1 that is not needed: it exits at the end of its stream.
func (c *child) closeAndWait() {
	c.stream.Close()
	c.process.Wait()
	c.user.releaseUser()
	if c.hold != nil {
		c.hold.stopEnforcing()
	}
}
