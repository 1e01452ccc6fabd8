//go:build linux

package jail

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
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

// An initPool holds the processes that wait. It needs only its jail.
type initPool struct {
	jail    *Jail
	arming  sync.Mutex // held while a process is started in advance
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

// preforkChild starts a PID 1 in advance. If it cannot, the next call reports the reason.
func (s *initPool) preforkChild(lesser bool) bool {
	s.arming.Lock()
	defer s.arming.Unlock()
	mounts, err := openMountTable()
	if err != nil {
		return false
	}
	a := preforkedInit{mounts: mounts}
	if a.child, err = s.jail.spawnChild(initName(lesser)); err != nil {
		a.mounts.Close()
		return false
	}
	return s.addPreforked(a)
}

// takePreforked takes a PID 1 that waits or that is being started. It returns nil if none is available.
func (s *initPool) takePreforked(lesser bool) *child {
	c, none := s.takeMatching(lesser, true)
	if none {
		s.arming.Lock() // takes no longer than starting another one
		defer s.arming.Unlock()
		c, _ = s.takeMatching(lesser, false)
	}
	return c
}

// refillPool starts the missing processes in the background.
func (s *initPool) refillPool(lesser bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.filling || s.closed {
		return
	}
	s.filling = true
	s.busy.Go(func() {
		for able := true; s.waitUntilNeeded(able); able = s.preforkChild(lesser) {
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

// openMountTable returns a file for hasMountChange. It must be opened before the process whose mounts it stands for is
// started, so that every later change is seen. It must stay out of the Go runtime's poller, which would consume the
// only event.
func openMountTable() (*os.File, error) {
	fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "mountinfo"), nil
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
