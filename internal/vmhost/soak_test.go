//go:build linux

package vmhost

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/hostapi"
)

// TestSoak lets six callers create, use, branch and destroy sandboxes for the duration in BAILEY_SOAK (default 10s; 30m
// by hand, with a longer -timeout), while QEMU processes are killed at random. After each of three rounds, no machine,
// process, goroutine or descriptor stays, and the memory does not grow.
func TestSoak(t *testing.T) {
	duration := 10 * time.Second
	if text := os.Getenv("BAILEY_SOAK"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("BAILEY_SOAK: %v", err)
		}
	}
	c := testConfig(t, shortDir(t))
	r := runHost(t, c)
	t.Cleanup(func() { clearHost(t, r) })
	must(
		r,
		hostapi.Create,
		hostapi.CreateRequest{Name: "first", Image: "agent", MemoryMB: 96},
	) // makes the warm template
	must(r, hostapi.Destroy, hostapi.Target{Sandbox: "first"})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var first soakState
	for round := range 3 {
		done, killed := r.soakRound(duration/3, seed+uint64(round)*100)
		state := r.soakState()
		t.Logf("round %d: %d operations, %d machines killed, %+v", round, done, killed, state)
		if round == 0 {
			first = state
			continue
		}
		if state.goroutines > first.goroutines+4 || state.descriptors > first.descriptors+4 ||
			state.heap > first.heap*3/2+4<<20 {
			t.Errorf("round %d left %+v, the first %+v", round, state, first)
		}
	}
}

// soakState is what a host must not accumulate.
type soakState struct {
	goroutines, descriptors int
	heap                    uint64
}

// soakState checks that no sandbox is left, and waits until the host rests.
func (r *running) soakState() (s soakState) {
	r.t.Helper()
	eventually(r.t, "nothing is left of the round", func() bool {
		return len(r.host.allBoxes()) == 0 && len(machinesBelow(r.t, r.host)) == 0 &&
			len(holdersOf(r.t, string(r.host.Dir))) == 0
	})
	wantFiles(r.t, r.host, 0, 1)
	last := -1
	eventually(r.t, "the goroutines of the round end", func() bool {
		now := runtime.NumGoroutine()
		rests := now == last
		last = now
		return rests
	})
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		r.t.Fatal(err)
	}
	return soakState{last, len(fds), memory.HeapAlloc}
}

// soakRound runs the callers, and a killer beside them.
func (r *running) soakRound(duration time.Duration, seed uint64) (done, killed int64) {
	ctx, cancel := context.WithTimeout(r.t.Context(), duration)
	defer cancel()
	var operations, kills atomic.Int64
	var callers, killer sync.WaitGroup
	for n := range 6 {
		owner := hostapi.Owner{Person: "ann", Agent: fmt.Sprint("agent", n)}
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		callers.Go(func() {
			for ctx.Err() == nil {
				r.soakOnce(owner, random, &operations)
			}
		})
	}
	killer.Go(func() {
		random := rand.New(rand.NewPCG(seed, 99))
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			if pids := holdersOf(r.t, string(r.host.Dir)); len(pids) > 0 && random.IntN(2) == 0 {
				kills.Add(1)
				unix.Kill(pids[random.IntN(len(pids))], unix.SIGKILL)
			}
		}
	})
	callers.Wait()
	killer.Wait()
	return operations.Load(), kills.Load()
}

// soakOnce makes a sandbox, uses and perhaps branches it, and destroys all that its owner has. Each operation may fail
// because a machine was killed; the error must say something.
func (r *running) soakOnce(owner hostapi.Owner, random *rand.Rand, done *atomic.Int64) {
	ctx := r.t.Context()
	check := func(operation string, err error) bool {
		done.Add(1)
		if err != nil && (bailey.KindOf(err) == bailey.Internal || bailey.KindOf(err) == "") {
			r.t.Errorf("%s: %v", operation, err)
		}
		return err == nil
	}
	made, err := hostapi.Create.Ask(ctx, r.Client, owner, hostapi.CreateRequest{Image: "agent", MemoryMB: 96})
	if check("create", err) {
		target := hostapi.Target{Sandbox: made.ID}
		if random.IntN(3) > 0 {
			_, err = hostapi.WriteFile.Ask(
				ctx,
				r.Client,
				owner,
				hostapi.WriteRequest{Sandbox: made.ID, Path: "/f", Data: make([]byte, 64<<10)},
			)
			check("write", err)
			_, err = r.Exec(
				ctx,
				owner,
				hostapi.Command{Sandbox: made.ID, Argv: []string{hostapi.AgentProgram, "unpack"}},
				hostapi.Streams{},
			)
			check("exec", err)
		}
		switch random.IntN(4) {
		case 0:
			_, err = hostapi.Branch.Ask(
				ctx,
				r.Client,
				owner,
				hostapi.BranchRequest{Sandbox: made.ID, N: 1 + random.IntN(2)},
			)
			check("branch", err)
		case 1:
			_, err = hostapi.Stop.Ask(ctx, r.Client, owner, target)
			if check("stop", err) {
				_, err = hostapi.Start.Ask(ctx, r.Client, owner, target)
				check("start", err)
			}
		}
	}
	list, err := hostapi.List.Ask(ctx, r.Client, owner, hostapi.None{})
	check("list", err)
	for _, s := range list {
		_, err := hostapi.Destroy.Ask(ctx, r.Client, owner, hostapi.Target{Sandbox: s.ID})
		if !errors.Is(err, bailey.NotFound) && !check("destroy", err) {
			r.t.Errorf("sandbox %s stays: %v", s.ID, err)
		}
	}
}
