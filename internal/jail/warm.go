//go:build linux

package jail

import (
	"context"

	"bailey"
)

// warmth saves calls the time to build a new cage: a warm helper serves calls of a plan that was seen before, and other
// calls find their first process started in advance. The cold path, which plans, composes, starts and spawns, builds a
// complete cage for every call without it. It knows only this interface and the three functions that
// [TestColdPathStandsAlone] lists, so it can be read without the files warm_*.go.
type warmth interface {
	// serve runs the call in a cage that stands. If there is none, or nothing was executed in it, begun is false: then
	// the call needs a new cage. A call that has begun must never begin again.
	serve(ctx context.Context, r *run, words []string, s bailey.Streams, p *pipes) (e cageResult, begun bool)
	// takeFirstProcess returns a first process, PID 1 or a keeper, that waits for its start request, or nil.
	takeFirstProcess(lesser bool) *child
	// prepareNext prepares for later calls, after one that was served in a new cage.
	prepareNext(r *run)
	// close ends everything that was prepared. Calls must have ended.
	close()
}
