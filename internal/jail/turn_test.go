//go:build linux

package jail

import (
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// TestTurn checks that a call waits until an earlier one has built its cage, and not for the end of its tool.
func TestTurn(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	j.building = make(chan struct{}, 1)
	j.building <- struct{}{}
	ended := make(chan told)
	go func() { ended <- ask(t, j, bailey.Job{}, "exit", "0") }()
	select {
	case r := <-ended:
		t.Fatalf("a call did not wait for its turn: %+v", r)
	case <-time.After(50 * time.Millisecond):
	}
	<-j.building
	if r := (<-ended).must(t); r.exit.Code != 0 || len(j.building) != 0 {
		t.Errorf("the call that waited: %+v, and %d are building", r, len(j.building))
	}

	dir, p := writable(t)
	go func() {
		ended <- ask(t, j, bailey.Job{Places: []bailey.Place{p}, Timeout: 5 * time.Second}, "stay", dir+"/beat")
	}()
	for begin := time.Now(); size(dir+"/beat") == 0 && time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) {
	}
	select { // this process may hear later than the tool begins that it began
	case j.building <- struct{}{}:
		<-j.building
	case r := <-ended:
		t.Fatalf("a cage counts as being built while its tool runs: %+v", r)
	}
	if r := (<-ended).must(t); !r.exit.TimedOut {
		t.Errorf("the tool that stays: %+v", r)
	}
	if r := ask(t, j, bailey.Job{}, "exit", "0").must(t); r.exit.Code != 0 {
		t.Errorf("a call after one whose time was up: %+v", r)
	}
}
