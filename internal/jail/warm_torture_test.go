//go:build linux

package jail

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// TestWarmTorture runs 3 and 64 concurrent callers while helpers, PID 1 processes and tools are killed at random, for
// the time in BAILEY_TORTURE (default 5 s). Each tool must run at most once, and exactly once if its call reports a
// normal end. At the end nothing may remain.
func TestWarmTorture(t *testing.T) {
	ktest.Long(t)
	d := 5 * time.Second
	if s := os.Getenv("BAILEY_TORTURE"); s != "" {
		var err error
		if d, err = time.ParseDuration(s); err != nil {
			t.Fatalf("BAILEY_TORTURE: %v", err)
		}
	}
	for _, callers := range []int{3, 64} { // few callers find helpers most of the time; many do not
		for _, onDemand := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d at once, on demand %v", callers, onDemand), func(t *testing.T) {
				torture(t, warmJail(t, Config{OnDemand: onDemand}), callers, d/4)
			})
		}
	}
}

func torture(t *testing.T, w *warmed, many int, d time.Duration) {
	dir, p := writable(t)
	job := bailey.Job{Places: []bailey.Place{p}}
	before := w.bare(t)
	var n, well, killed, refused atomic.Int64
	// On a busy machine, or under the race detector, it takes longer until a helper was killed in a call. A cold call
	// counts as cold before it counts as ended, so calls in progress never count as warm.
	tried := func(warm int) bool {
		ended := well.Load() + killed.Load() + refused.Load()
		return well.Load() > 0 && (many > maxHelpers || killed.Load() > 0 && ended-w.cold.Load() >= int64(warm))
	}
	stop := make(chan struct{})
	var callers, killer sync.WaitGroup
	kills := map[string]int{}
	var last atomic.Int64 // how long the last call took
	killer.Go(func() { w.killing(stop, &last, kills) })
	for end := time.Now().Add(d); len(w.cages().all()) == 0 && time.Now().Before(end); {
		ask(t, w.Jail, job, "exit", "0")
	}
	w.cold.Store(0)
	for range many {
		callers.Go(func() {
			for end := time.Now().Add(d); (time.Now().Before(end) || !tried(many) && time.Now().Before(end.Add(time.Minute))) && !t.Failed(); {
				i := n.Add(1)
				file := filepath.Join(dir, fmt.Sprint(i))
				args := []string{"count", file, fmt.Sprint(rand.N(10 * time.Millisecond))}
				begin := time.Now()
				r := ask(t, w.Jail, job, args...)
				switch runs := size(file); {
				case r.err == nil && r.exit == (bailey.Exit{}) && runs == 1:
					well.Add(1)
				case r.err == nil && r.exit.Code == 137 && runs <= 1:
					killed.Add(1)
				case r.err != nil && r.exit == never && runs == 0:
					refused.Add(1)
					t.Logf("refused: %v", r.err)
				default:
					t.Errorf("%d runs, and %+v", runs, r)
				}
				took := time.Since(begin)
				last.Store(int64(took))
				if took > time.Minute {
					t.Errorf("a call took %v", took)
				}
				os.Remove(file)
			}
		})
	}
	callers.Wait()
	close(stop)
	killer.Wait()
	t.Logf("%d calls: %d ended well, %d killed, %d refused; at most %d cold; killed %v", n.Load(), well.Load(), killed.Load(), refused.Load(), w.cold.Load(), kills)
	if !tried(1) || kills["helper"] == 0 {
		t.Error("nothing was tried")
	}
	w.heat(t, job, "exit", "0") // the jail still works
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	after := w.bare(t)
	for end := time.Now().Add(time.Minute); after.processes > 1 && time.Now().Before(end); after = w.bare(t) {
		time.Sleep(50 * time.Millisecond)
	}
	if after.processes != 1 || after.zombies > 0 || after.mounts != before.mounts || after.descriptors > before.descriptors+4 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// killing kills a helper or a child of one at random times. If calls are slow it kills less often: otherwise each helper
// dies before a call finds it, and all calls are cold.
func (w *warmed) killing(stop <-chan struct{}, last *atomic.Int64, kills map[string]int) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(rand.N(max(100*time.Millisecond, 2*time.Duration(last.Load())))):
		}
		all := w.cages().all()
		if len(all) == 0 {
			continue
		}
		h := all[rand.IntN(len(all))]
		pid, what := h.process.Pid, "helper"
		if list := childrenOf(pid); rand.IntN(4) > 0 && len(list) > 0 {
			k := rand.IntN(len(list))
			pid, what = list[k], []string{"first", "tool"}[min(k, 1)]
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // the pid may have been reused
		if strings.Contains(string(status), fmt.Sprintf("PPid:\t%d\n", h.process.Pid)) || strings.Contains(string(status), fmt.Sprintf("PPid:\t%d\n", os.Getpid())) {
			if unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil {
				kills[what]++
			}
		}
		unix.Close(fd)
	}
}
