//go:build linux

package jail

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
	"bailey/internal/ktest"
)

// A warmed jail can block cold calls: a call that no helper serves then fails, so a successful call was warm.
type warmed struct {
	*Jail
	shut atomic.Bool
	cold atomic.Int64 // PID 1 processes that do not belong to a helper
}

func warmJail(t testing.TB, cfg Config) *warmed {
	t.Helper()
	ktest.Require(t, "userns", "netns")
	if !inside.Walks {
		ktest.Missing(t, "warm-helpers", os.ErrNotExist)
	}
	w := &warmed{Jail: plainJail(t, cfg)}
	if _, err := w.holder.openCgroups(); err != nil {
		ktest.Missing(t, "cgroup", err)
	}
	w.weaken = func(how *syscall.SysProcAttr) {
		if slices.Contains(how.AmbientCaps, unix.CAP_SYS_CHROOT) { // only helpers have it
			return
		}
		if w.cold.Add(1); w.shut.Load() {
			how.Chroot = "/no/such/directory"
		}
	}
	return w
}

// cages returns what saves calls of this jail a new cage.
func (j *Jail) cages() *warmCages { return j.warm.(*warmCages) }

// heat returns a helper that waits for a call of the job's plan, and blocks cold calls. Until then the job runs cold
// with the given arguments, which must have no effect.
func (w *warmed) heat(t testing.TB, job bailey.Job, args ...string) *helper {
	t.Helper()
	if job.Command == "" {
		job.Command = probe
	}
	job.Args = args
	r, err := w.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	digest := r.Cage().PlanDigest
	r.Close()
	w.shut.Store(false)
	for begin := time.Now(); ; {
		if h := w.waiting(digest); h != nil {
			w.shut.Store(true)
			w.cages().stock.empty()
			return h
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("no helper comes for\n%s", r.Cage().Plan)
		}
		ask(t, w.Jail, job).must(t)
	}
}

// waiting returns a helper that is ready for a call of a plan, or nil if there is none even after all busy ones have
// finished.
func (w *warmed) waiting(digest string) *helper {
	w.cages().busy.Wait()
	w.cages().mu.Lock()
	defer w.cages().mu.Unlock()
	k := slices.IndexFunc(w.cages().helpers, func(h *helper) bool { return h.digest == digest && !h.taken && h.isReady() && h.isUsable() })
	if k < 0 {
		return nil
	}
	return w.cages().helpers[k]
}

// keeps tells whether the jail keeps the helper for further calls.
func (w *warmed) keeps(h *helper) bool {
	return w.waiting(h.digest) != nil && slices.Contains(w.cages().helpers, h)
}

// hot runs the probe in the cage of a helper, and also returns that helper.
func (w *warmed) hot(t testing.TB, job bailey.Job, args ...string) (told, *helper) {
	t.Helper()
	return w.brief(t, job, job.Timeout, args...)
}

// brief is hot with a timeout for the call only: until there is a helper may take longer.
func (w *warmed) brief(t testing.TB, job bailey.Job, timeout time.Duration, args ...string) (told, *helper) {
	t.Helper()
	h := w.heat(t, job, "exit", "0")
	before := h.calls
	job.Timeout = timeout
	r := ask(t, w.Jail, job, args...)
	if h.calls != before+1 {
		t.Fatalf("%v: the helper that waited has served %d calls; it is spoilt: %v, the mounts have changed: %v; %+v", args, h.calls-before, h.spoilt, hasMountChange(h.mounts), r)
	}
	return r, h
}

func start(ctx context.Context, j *Jail, job bailey.Job, lent []string, s bailey.Streams) (bailey.Exit, error) {
	r, err := j.Plan(ctx, job)
	if err != nil {
		return never, err
	}
	defer r.Close()
	return r.Start(ctx, bailey.Lent{Env: lent}, s)
}

// writable returns a place that a warm cage can have, in which its tool counts its own runs.
func writable(t testing.TB) (dir string, p bailey.Place) {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "bailey-warm-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir, place(t, dir, true)
}

// size returns the size of a file, or 0 if it does not exist.
func size(file string) int {
	b, _ := os.ReadFile(file)
	return len(b)
}

// TestWarmIsWarm checks that the second call of a plan starts a helper, which serves the following ones, and that heat
// blocks cold calls. Otherwise these tests would prove nothing.
func TestWarmIsWarm(t *testing.T) {
	ktest.Long(t)
	w := warmJail(t, Config{})
	h := w.heat(t, bailey.Job{}, "exit", "0")
	for i := range 5 {
		r, same := w.hot(t, bailey.Job{}, "exit", "3")
		if r.err != nil || r.exit.Code != 3 || same != h || h.calls != i+1 {
			t.Errorf("call %d: %+v, the same helper: %v, which has served %d", i, r, same == h, h.calls)
		}
	}
	if r := ask(t, w.Jail, bailey.Job{Limits: bailey.Limits{Tasks: 17}}, "exit", "3"); r.err == nil {
		t.Errorf("a call that no helper waits for went the way that was shut: %+v", r)
	}
	name, _ := os.ReadFile("/proc/" + strconv.Itoa(h.process.Pid) + "/cmdline")
	if !bytes.HasPrefix(name, []byte(inside.Warm)) {
		t.Errorf("the helper is called %q", name)
	}
}

// TestOnDemandIsWarm checks that helpers also serve calls if no cage is prepared in advance.
func TestOnDemandIsWarm(t *testing.T) {
	w := warmJail(t, Config{OnDemand: true})
	for range 3 {
		r, h := w.hot(t, bailey.Job{}, "exit", "3")
		if r.err != nil || r.exit.Code != 3 || !w.keeps(h) || h.hasArmedCage() || h.parked {
			t.Errorf("%+v, kept %v, armed %v", r, w.keeps(h), h.hasArmedCage())
		}
	}
}
