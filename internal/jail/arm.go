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

// A jail keeps PID 1s armed: each was started ahead in namespaces of its own, holds nothing, and waits for its
// letter. A call that finds one saves the clone and the start of this program, some 3 ms. It is used for
// one call and never again, like any other. Its mount namespace is a copy of the gateway's, made when it
// was started: once a mount has come or gone since, it is dismissed, or it would show what was there then.
//
// One waits, and one more for each call that came too soon after others to find one, as those of a chain of hooks
// do; a minute without a call, and it is one again.

// With a keeper in place of PID 1 all this is the same, and no mount matters.

const (
	maxArmed = 8                     // at once
	lull     = 10 * time.Millisecond // without a new call, before more are started while some wait: calls need the processor
)

// A stock is what waits. Its zero value is ready.
type stock struct {
	mu      sync.Mutex
	closed  bool           // guarded by mu, as all below
	waiting []armed        // the oldest first
	more    int            // how many are to wait beside the first
	calls   int            // so far
	seen    int            // as many, when that was last looked at
	filling bool           // somebody is at it
	busy    sync.WaitGroup // filling, and dismissals
	idle    *time.Timer    // ends those that nobody needs
}

// armed is a PID 1 that waits. The file tells whether mounts have changed since it was started.
type armed struct {
	*child
	mounts *os.File
}

// carry has one PID 1 carry out a letter; files opens what goes along, anew for each attempt. An armed one
// that could not build its cage is no answer. Nothing has run, so a new one tries once more.
// What is outside of the cage is nil where it has no network; the sockets of one that failed are none of the next one's.
func (j *Jail) carry(ctx context.Context, p *plan, message []byte, files func(uid int) ([]*os.File, error), out *outside, timeout time.Duration) (ending, error) {
	defer j.refill(p.lesser)
	if p.lesser {
		if err := j.adopt(); err != nil {
			return ending{}, err
		}
		defer j.disown()
	}
	built := j.turn(ctx)
	defer built()
	deadline := time.Now().Add(timeout)
	if c := j.disarm(p.lesser); c != nil {
		c.out, c.built = out, built
		e, err := j.deliver(ctx, c, p.bounds, message, files, timeout)
		if err != nil || e.started || e.cancelled || e.timedOut {
			return e, err
		}
		out.forget()
	}
	c, err := j.spawn(initName(p.lesser))
	if err != nil {
		return ending{}, err
	}
	c.out, c.built = out, built
	return j.deliver(ctx, c, p.bounds, message, files, time.Until(deadline))
}

// turn waits until the call's cage may be built: of two hundred that are built at once each takes as long as all of them, and
// the time of its tool is up before the tool begins. The caller says when the cage is built. Cages that take longer than
// turnTime hold up no other call.
func (j *Jail) turn(ctx context.Context) (built func()) {
	leave := sync.OnceFunc(func() { <-j.building })
	select {
	case j.building <- struct{}{}:
		return leave
	default:
	}
	enough := time.NewTimer(turnTime)
	defer enough.Stop()
	select {
	case j.building <- struct{}{}:
		return leave
	case <-enough.C:
	case <-ctx.Done():
	}
	return func() {}
}

const (
	maxBuilding = 8 // cages at once, for each processor
	turnTime    = 5 * time.Second
)

// deliver bounds the child, opens the descriptors, follows the child to its end and ends what a keeper could not.
func (j *Jail) deliver(ctx context.Context, c *child, b bounds, message []byte, files func(uid int) ([]*os.File, error), timeout time.Duration) (ending, error) {
	if err := c.limit(b); err != nil {
		c.dismiss()
		return ending{}, err
	}
	with, err := files(c.user.uid)
	if err != nil {
		c.dismiss()
		return ending{}, err
	}
	e := c.follow(ctx, message, with, timeout)
	if c.keeper && !e.orderly {
		j.gathering.Lock()
		endOrphans()
		j.gathering.Unlock()
	}
	return e, nil
}

// initName is what a call's first process is started by.
func initName(lesser bool) string {
	if lesser {
		return inside.Keeper
	}
	return inside.Name
}

// arm starts a PID 1 ahead. Why it could not is the next call's to say.
func (j *Jail) arm(lesser bool) bool {
	j.arming.Lock()
	defer j.arming.Unlock()
	// First, so that what changes from here on is seen; and kept from the Go runtime's poller, which would
	// take the one event there is.
	fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	a := armed{mounts: os.NewFile(uintptr(fd), "mountinfo")}
	if a.child, err = j.spawn(initName(lesser)); err != nil {
		a.mounts.Close()
		return false
	}
	return j.stock.put(a)
}

// disarm takes a PID 1 that waits, or one that is about to, nil when there is none.
func (j *Jail) disarm(lesser bool) *child {
	c, none := j.stock.take(lesser, true)
	if none {
		j.arming.Lock() // which takes no longer than to start another
		defer j.arming.Unlock()
		c, _ = j.stock.take(lesser, false)
	}
	return c
}

// refill starts what is missing, and does not wait for it.
func (j *Jail) refill(lesser bool) {
	s := &j.stock
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.filling || s.closed {
		return
	}
	s.filling = true
	s.busy.Go(func() {
		for able := true; s.short(able); able = j.arm(lesser) {
		}
	})
}

// short waits until another is to be started, and is false when none is missing, or none can be.
func (s *stock) short(able bool) bool {
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

// put has one wait, unless the jail was closed.
func (s *stock) put(a armed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.busy.Go(a.dismiss)
		return false
	}
	s.waiting = append(s.waiting, a)
	return true
}

// take returns one that fits, nil for none, and tells whether none waited at all. Of what a call finds that is no longer
// fit it ends all. The first two calls, one of them the host's trial, say nothing about how many there should be.
func (s *stock) take(lesser, call bool) (c *child, none bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if none = len(s.waiting) == 0 && !s.closed; call {
		if s.calls++; none && s.calls > 2 {
			s.more = min(s.more+1, maxArmed-1)
		}
		s.watch()
	}
	for c == nil && len(s.waiting) > 0 {
		a := s.waiting[0]
		s.waiting = s.waiting[1:]
		if remounted(a.mounts) && !lesser || a.keeper != lesser {
			s.busy.Go(a.dismiss)
			continue
		}
		a.mounts.Close()
		c = a.child
	}
	return c, none
}

// watch has the stock go back to one when nobody calls for a while.
func (s *stock) watch() {
	switch {
	case s.closed:
	case s.idle == nil:
		s.idle = time.AfterFunc(idleTime, s.tire)
	default:
		s.idle.Reset(idleTime)
	}
}

func (s *stock) tire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.more = 0; !s.closed {
		s.keep(1)
	}
}

// keep ends all but the latest few. The caller holds mu.
func (s *stock) keep(few int) {
	for len(s.waiting) > few {
		s.busy.Go(s.waiting[0].dismiss)
		s.waiting = s.waiting[1:]
	}
}

// close ends all that wait.
func (s *stock) close() {
	s.mu.Lock()
	s.closed = true
	if s.idle != nil {
		s.idle.Stop()
	}
	s.keep(0)
	s.mu.Unlock()
	s.busy.Wait()
}

// remounted tells whether the mount table has changed since the file was opened (proc(5): the kernel
// marks it for poll(2) as exceptional). When it cannot be told, it has.
func remounted(mountinfo *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(mountinfo.Fd()), Events: unix.POLLPRI}}
	n, err := unix.Poll(fds, 0)
	return n != 0 || err != nil
}

func (a armed) dismiss() {
	a.child.dismiss()
	a.mounts.Close()
}

// dismiss ends a PID 1 that nobody needs: the end of its stream is its end.
func (c *child) dismiss() {
	c.stream.Close()
	c.process.Wait()
	c.user.left()
	if c.hold != nil {
		c.hold.end()
	}
}
