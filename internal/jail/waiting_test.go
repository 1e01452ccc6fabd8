//go:build linux

package jail

import (
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// TestWaiting checks that no helper waits before a plan was seen twice. Then one must wait, with or without a prepared
// cage, until a call takes it, and again afterwards.
func TestWaiting(t *testing.T) {
	ktest.Long(t)
	for _, onDemand := range []bool{false, true} {
		j := plainJail(t, Config{})
		if _, err := j.holder.openCgroups(); err != nil {
			ktest.Missing(t, "cgroup", err)
		}
		j.cages().onDemand = onDemand
		if n := j.Waiting(); n != 0 {
			t.Errorf("%d wait before any call", n)
		}
		ask(t, j, bailey.Job{Command: "true"})
		ask(t, j, bailey.Job{Command: "true"})
		waits := func(what string) {
			t.Helper()
			for deadline := time.Now().Add(time.Minute); j.Waiting() != 1; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%s: %d wait", what, j.Waiting())
				}
			}
		}
		waits("after two calls")
		h := j.cages().takeHelper(t.Context(), j.cages().helpers[0].digest)
		if n := j.Waiting(); n != 0 {
			t.Errorf("%d wait while a call has the only one", n)
		}
		h.ready, h.taken = make(chan struct{}), false
		if n := j.Waiting(); n != 0 {
			t.Errorf("%d wait while the only one arms", n)
		}
		j.cages().takeBackHelper(h)
		waits("after the call")
	}
}
