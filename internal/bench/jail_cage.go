package bench

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"bailey"
	"bailey/internal/jail"
)

// openJail returns a jail with a warm helper for the program, or the reason if no helper is available.
func (b *jailBench) openJail(ctx context.Context, cfg jail.Config) (*jail.Jail, error) {
	j, err := jail.New(cfg)
	if err != nil {
		return nil, err
	}
	b.closing = append(b.closing, func() { j.Close() })
	run, err := j.Plan(ctx, b.commandJob())
	if err != nil {
		return nil, err
	}
	cage := run.Cage()
	run.Close()
	switch {
	case cage.Lesser != "":
		return nil, errors.New("no full cage: " + cage.Lesser)
	case cage.Kind != "full":
		return nil, errors.New("this platform has no cage")
	case slices.Contains(cage.Absent, "cgroup"):
		return nil, errors.New("no control group can be made, so no helper is kept: bailey doctor shows the reason")
	}
	return j, b.warmUpHelper(ctx, j)
}

// warmUpHelper makes calls until a helper waits for the next call.
func (b *jailBench) warmUpHelper(ctx context.Context, j *jail.Jail) error {
	for deadline := time.Now().Add(2 * helperTime); j.Waiting() == 0; {
		for range 2 { // a plan that is seen twice gets a helper
			if _, err := b.timeCall(ctx, j); err != nil {
				return err
			}
		}
		for soon := time.Now().Add(helperTime / 4); j.Waiting() == 0 && time.Now().Before(soon); {
			time.Sleep(benchPeriod)
		}
		if time.Now().After(deadline) {
			return errors.New("no warm helper was started for its plan")
		}
	}
	return nil
}

func (b *jailBench) commandJob() bailey.Job {
	return bailey.Job{Command: b.command[0], Args: b.command[1:]}
}

// timeCall plans the program and runs it in a cage.
func (b *jailBench) timeCall(ctx context.Context, j *jail.Jail) ([]time.Duration, error) {
	start := time.Now()
	run, err := j.Plan(ctx, b.commandJob())
	if err != nil {
		return nil, err
	}
	err = runCaptured(ctx, run)
	run.Close()
	return []time.Duration{time.Since(start)}, err
}

func runCaptured(ctx context.Context, run bailey.Run) error {
	var stdout, stderr bytes.Buffer
	exit, err := run.Start(ctx, bailey.Lent{}, bailey.Streams{Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		return err
	}
	return exitError(exit.Code, &stderr)
}

func (b *jailBench) hasWarm(context.Context) error {
	if b.warm == nil {
		return errors.New("there is no row warm")
	}
	return nil
}

// timeParkedCall runs a plan that was made ahead, when a helper waits that is otherwise ready. The helper may have exited at
// the end of its lifetime, and the next starts only after a call.
func (b *jailBench) timeParkedCall(ctx context.Context) ([]time.Duration, error) {
	run, err := b.warm.Plan(ctx, b.commandJob())
	if err != nil {
		return nil, err
	}
	defer run.Close()
	if b.warm.Waiting() == 0 {
		if err := b.warmUpHelper(ctx, b.warm); err != nil {
			return nil, err
		}
		time.Sleep(jailPause)
	}
	start := time.Now()
	err = runCaptured(ctx, run)
	return []time.Duration{time.Since(start)}, err
}

// timeTwoLanes runs two independent lanes that call the same jail. Each lane begins at a random time.
func (b *jailBench) timeTwoLanes(ctx context.Context, j *jail.Jail) ([]time.Duration, error) {
	var took [2]time.Duration
	var lanes errgroup.Group
	for i := range took {
		lanes.Go(func() error {
			time.Sleep(rand.N(jailPause))
			t, err := b.timeCall(ctx, j)
			if err == nil {
				took[i] = t[0]
			}
			return err
		})
	}
	err := lanes.Wait()
	return took[:], err
}

// heapNode is a heap object of 64 bytes.
type heapNode struct {
	on *heapNode
	_  [7]uint64
}

// allocateHeap allocates size bytes that the garbage collector must scan.
func allocateHeap(size int64) []*heapNode {
	wall := make([]*heapNode, size/72) // a brick and the pointer to it
	for i := range wall {
		wall[i] = &heapNode{on: wall[i/2]}
	}
	runtime.GC()
	return wall
}
