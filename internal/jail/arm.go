//go:build linux

package jail

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"bailey/internal/jail/inside"
)

// A jail keeps one PID 1 armed: started ahead in namespaces of its own, holding nothing, waiting for its
// letter. A call that finds it saves the clone and the start of this program, some 3 ms. It is used for
// one call and never again, like any other. Its mount namespace is a copy of the gateway's, made when it
// was started: once a mount has come or gone since, it is dismissed, or it would show what was there then.

// With a keeper in place of PID 1 all this is the same, and no mount matters.

// carry has one PID 1 carry out a letter; files opens what goes along, anew for each attempt. An armed one
// that could not build its cage is no answer. Nothing has run, so a new one tries once more.
// What is outside of the cage is nil where it has no network; the sockets of one that failed are none of the next one's.
func (j *Jail) carry(ctx context.Context, p *plan, message []byte, files func() ([]*os.File, error), out *outside, timeout time.Duration) (ending, error) {
	defer func() { go j.arm(p.lesser) }()
	if p.lesser {
		if err := j.adopt(); err != nil {
			return ending{}, err
		}
		defer j.disown()
	}
	deadline := time.Now().Add(timeout)
	if c := j.disarm(p.lesser); c != nil {
		c.out = out
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
	c.out = out
	return j.deliver(ctx, c, p.bounds, message, files, time.Until(deadline))
}

// deliver bounds the child, opens the descriptors, follows the child to its end and ends what a keeper could not.
func (j *Jail) deliver(ctx context.Context, c *child, b bounds, message []byte, files func() ([]*os.File, error), timeout time.Duration) (ending, error) {
	if err := c.limit(b); err != nil {
		c.dismiss()
		return ending{}, err
	}
	with, err := files()
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

// arm starts a PID 1 ahead unless one waits already. Why it could not is the next call's to say.
func (j *Jail) arm(lesser bool) {
	j.arming.Lock()
	defer j.arming.Unlock()
	if j.closed || j.armed != nil {
		return
	}
	// First, so that what changes from here on is seen; and kept from the Go runtime's poller, which would
	// take the one event there is.
	fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	mounts := os.NewFile(uintptr(fd), "mountinfo")
	c, err := j.spawn(initName(lesser))
	if err != nil {
		mounts.Close()
		return
	}
	j.armed, j.mounts = c, mounts
}

// disarm takes the waiting PID 1, nil when there is none, or not yet, or when mounts have changed since
// it was started.
func (j *Jail) disarm(lesser bool) *child {
	if !j.arming.TryLock() {
		return nil
	}
	defer j.arming.Unlock()
	c := j.armed
	if c == nil {
		return nil
	}
	changed := remounted(j.mounts) && !lesser || c.keeper != lesser
	j.mounts.Close()
	j.armed, j.mounts = nil, nil
	if changed {
		c.dismiss()
		return nil
	}
	return c
}

// remounted tells whether the mount table has changed since the file was opened (proc(5): the kernel
// marks it for poll(2) as exceptional). When it cannot be told, it has.
func remounted(mountinfo *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(mountinfo.Fd()), Events: unix.POLLPRI}}
	n, err := unix.Poll(fds, 0)
	return n != 0 || err != nil
}

// dismiss ends a PID 1 that nobody needs: the end of its stream is its end.
func (c *child) dismiss() {
	c.stream.Close()
	c.process.Wait()
	if c.hold != nil {
		c.hold.end()
	}
}
