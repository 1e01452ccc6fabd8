package jail

import (
	"context"
	"errors"
	"time"

	"bailey"
)

// runTimes holds how long a tool may run, and how long it may then take to end.
type runTimes struct{ timeout, grace time.Duration }

// waitForEnd returns what arrives when the tool has ended. If the time is up, or the cause of ctx is [bailey.Gentle], it
// asks the tool to terminate, and kills it after the grace time. If ctx has another cause, it kills at once.
func waitForEnd[T any](ctx context.Context, ended <-chan T, times runTimes, terminate, kill func()) (last T,
	timedOut, cancelled bool) {
	end := time.NewTimer(times.timeout)
	defer end.Stop()
	done, late := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case last = <-ended:
			return last, timedOut, cancelled
		case <-end.C:
			timedOut = true
			terminate()
			late = time.After(times.grace)
		case <-late:
			kill()
		case <-done:
			cancelled, done = true, nil
			if !errors.As(context.Cause(ctx), new(bailey.Gentle)) {
				kill()
				continue
			}
			terminate()
			late = time.After(times.grace)
		}
	}
}
