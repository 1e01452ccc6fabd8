//go:build linux

package jail

import (
	"context"
	"os"
	"time"
)

// A jail keeps one PID 1 armed: started ahead in namespaces of its own, holding nothing, waiting for its
// letter. A call that finds it saves the clone and the start of this program, some 3 ms. It is used for
// one call and never again, like any other.

// carry has one PID 1 carry out a letter. An armed one that could not build its cage is no answer: its
// mount namespace is older than the call, and what was mounted since is not in it. Nothing has run, so
// a new one tries once more.
func (j *Jail) carry(ctx context.Context, message []byte, files []*os.File, timeout time.Duration) (ending, error) {
	defer func() { go j.arm() }()
	if c := j.disarm(); c != nil {
		if e := c.follow(ctx, message, files, timeout); e.started || e.cancelled || e.timedOut {
			return e, nil
		}
	}
	c, err := j.spawn()
	if err != nil {
		return ending{}, err
	}
	return c.follow(ctx, message, files, timeout), nil
}

// arm starts a PID 1 ahead unless one waits already. Why it could not is the next call's to say.
func (j *Jail) arm() {
	j.arming.Lock()
	defer j.arming.Unlock()
	if j.closed || j.armed != nil {
		return
	}
	if c, err := j.spawn(); err == nil {
		j.armed = c
	}
}

// disarm takes the waiting PID 1, nil when there is none, or not yet.
func (j *Jail) disarm() *child {
	if !j.arming.TryLock() {
		return nil
	}
	defer j.arming.Unlock()
	c := j.armed
	j.armed = nil
	return c
}

// dismiss ends a PID 1 that nobody needs: the end of its stream is its end.
func (c *child) dismiss() {
	c.stream.Close()
	c.process.Wait()
}
