package daemon

import (
	"slices"
	"sync"
	"time"

	"bailey"
)

// eventTally collects the events for the receipt. Refusals have a limit of their own, so that allowed requests cannot
// displace them.
type eventTally struct {
	most int

	mu    sync.Mutex
	asked int
	sum   bailey.EgressReport
	told  map[bool]int // number of refusals (true) and of other events
}

// countRequest takes one request from the budget of the call, and reports whether there was one.
func (t *eventTally) countRequest(most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked++
	return t.asked <= most
}

func (t *eventTally) addEvent(e bailey.EgressEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Kind {
	case bailey.EgressClosed:
		t.sum.Connections++
	case bailey.EgressFailed:
		t.sum.Failed++
	default:
		t.sum.Refused++
	}
	t.sum.Up += e.Up
	t.sum.Down += e.Down
	refusal := e.Kind == bailey.EgressRefused
	if t.told == nil {
		t.told = map[bool]int{}
	}
	if t.told[refusal] >= t.most {
		t.sum.Untold++
		return
	}
	t.told[refusal]++
	e.Time, e.Via = time.Now(), "unix"
	t.sum.Events = append(t.sum.Events, e)
}

func (t *eventTally) egressReport() bailey.EgressReport {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.sum
	r.Events = slices.Clone(r.Events)
	return r
}
