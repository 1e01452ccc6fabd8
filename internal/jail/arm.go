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
type stock struct {
	mu      sync.Mutex
	closed  bool           // guarded by mu, like all fields below
	waiting []armed        // oldest first
	more    int            // how many must wait besides the first
	calls   int            // so far
	seen    int            // value of calls at the last check
	filling bool           // a refill is running
	busy    sync.WaitGroup // refills and dismissals
	idle    *time.Timer    // ends those that are not needed
}

// armed is a PID 1 that waits. Its file shows whether mounts have changed since it was started.
type armed struct {
	*child
	mounts *os.File
}

// carry makes one PID 1 execute a start request. files opens the descriptors that go with it, again for each attempt.
// If an armed PID 1 could not build its cage, nothing has run, so carry tries once more with a new one. out is nil if
// the cage has no network; sockets of a failed attempt are not reused.
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

// turn waits until the call's cage may be built: if two hundred are built at once, each takes as long as all of them,
// and the time of its tool is up before the tool begins. The caller must call built when the cage is built. A cage that
// takes longer than buildTime, for example because a file system hangs, does not hold up other calls any more.
func (j *Jail) turn(ctx context.Context) (built func()) {
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

// deliver bounds the child, opens the descriptors, follows the child to its end, and ends the processes that a keeper
// could not end.
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

// initName returns the name that starts a call's first process.
func initName(lesser bool) string {
	if lesser {
		return inside.Keeper
	}
	return inside.Name
}

// arm starts a PID 1 in advance. If it cannot, the next call reports the reason.
func (j *Jail) arm(lesser bool) bool {
	j.arming.Lock()
	defer j.arming.Unlock()
	// The file must be opened first, so that every later change is seen. It must stay out of the Go runtime's poller,
	// which would consume the only event.
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

// disarm takes a PID 1 that waits or that is being started. It returns nil if none is available.
func (j *Jail) disarm(lesser bool) *child {
	c, none := j.stock.take(lesser, true)
	if none {
		j.arming.Lock() // takes no longer than starting another one
		defer j.arming.Unlock()
		c, _ = j.stock.take(lesser, false)
	}
	return c
}

// refill starts the missing processes in the background.
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

// short waits until another process must be started. It returns false if none is missing or none can be started.
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

// put adds a process to the stock, unless the jail was closed.
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

// take returns a process that fits, or nil, and tells whether the stock was empty. It dismisses every process that it
// finds and that no longer fits. The first two calls, one of which is the probe of the host, do not change how many
// must wait.
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

// watch makes the stock shrink to one if no call comes for idleTime.
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

// keep dismisses all but the latest few. The caller must hold mu.
func (s *stock) keep(few int) {
	for len(s.waiting) > few {
		s.busy.Go(s.waiting[0].dismiss)
		s.waiting = s.waiting[1:]
	}
}

// close dismisses all processes that wait.
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

// remounted reports whether the mount table has changed since the file was opened (proc(5): poll(2) then returns an
// exceptional condition). If that cannot be determined, it returns true.
func remounted(mountinfo *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(mountinfo.Fd()), Events: unix.POLLPRI}}
	n, err := unix.Poll(fds, 0)
	return n != 0 || err != nil
}

func (a armed) dismiss() {
	a.child.dismiss()
	a.mounts.Close()
}

// dismiss ends a PID 1 that is not needed: it exits at the end of its stream.
func (c *child) dismiss() {
	c.stream.Close()
	c.process.Wait()
	c.user.left()
	if c.hold != nil {
		c.hold.end()
	}
}
