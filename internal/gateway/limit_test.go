package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"bailey"
)

// counting accepts every call and counts it.
type counting struct {
	mu    sync.Mutex
	calls int
}

func (c *counting) Do(context.Context, bailey.Call) bailey.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	return bailey.Result{Status: bailey.OK}
}

func (c *counting) EndSession(context.Context, bailey.SessionID) error { return nil }

// notes keeps the recorded entries. If err is set, it refuses them.
type notes struct {
	mu   sync.Mutex
	list []suppressedCalls
	err  error
	came chan struct{}
}

func (n *notes) note(_ context.Context, kind string, data any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.came != nil {
		n.came <- struct{}{}
	}
	if n.err != nil {
		return n.err
	}
	if kind != suppressedEvent {
		return fmt.Errorf("a note of kind %s", kind)
	}
	n.list = append(n.list, data.(suppressedCalls))
	return nil
}

func by(agent, person string) bailey.Call {
	return bailey.Call{Principal: bailey.Principal{Agent: agent, Person: person}}
}

// TestLimitIsOfADoor checks that an agent in a loop does not use up the limit of the user's own front end.
func TestLimitIsOfADoor(t *testing.T) {
	now := time.Now()
	l := NewLimit(LimitConfig{Gate: &counting{}, Note: (&notes{}).note, Rate: 1, Burst: 2, Every: time.Hour, Now: func() time.Time { return now }})
	defer l.Close()
	loop, own := by("local", "me"), by("local", "me")
	loop.Door, own.Door = "mcp", "cli"
	for range 10 {
		l.Do(context.Background(), loop)
	}
	if r := l.Do(context.Background(), own); r.Err != nil {
		t.Error(r.Err)
	}
}

func TestLimit(t *testing.T) {
	now := time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC)
	gate, said := &counting{}, &notes{}
	l := NewLimit(LimitConfig{Gate: gate, Note: said.note, Rate: 10, Burst: 5, Every: time.Hour, Now: func() time.Time { return now }})
	ok := func(agent, person string, n int) (passed int) {
		for range n {
			r := l.Do(context.Background(), by(agent, person))
			if r.Err == nil {
				passed++
				continue
			}
			if !errors.Is(r.Err, bailey.Denied) || bailey.HintOf(r.Err) == "" || r.Status != bailey.Refused || r.Receipt != "" || r.Executed {
				t.Fatalf("%+v", r)
			}
		}
		return passed
	}
	if n := ok("a", "ann", 20); n != 5 {
		t.Errorf("%d of a burst of 5", n)
	}
	if n := ok("a", "bob", 5) + ok("b", "ann", 5); n != 10 {
		t.Errorf("others suffer: %d", n)
	}
	now = now.Add(200 * time.Millisecond)
	if n := ok("a", "ann", 20); n != 2 {
		t.Errorf("%d after a fifth of a second", n)
	}
	now = now.Add(-time.Hour) // a clock that is set back adds no credit and removes none
	if n := ok("a", "ann", 3); n != 0 {
		t.Errorf("%d after the clock went back", n)
	}
	now = now.Add(2 * time.Hour)
	if n := ok("a", "ann", 20); n != 5 {
		t.Errorf("%d after a long while", n)
	}
	if gate.calls != 22 {
		t.Errorf("%d calls reached the spine", gate.calls)
	}
	l.Close()
	if len(said.list) != 1 || said.list[0].Calls != 15+18+3+15 || said.list[0].Agent != "a" || said.list[0].Person != "ann" || !said.list[0].From.Before(said.list[0].To) {
		t.Errorf("%+v", said.list)
	}
}

// TestSuppressedIsCounted checks that one entry stands for all calls that were refused in one interval. If an entry
// cannot be written, the next one must include its count.
func TestSuppressedIsCounted(t *testing.T) {
	said := &notes{came: make(chan struct{}), err: errors.New("full")}
	l := NewLimit(LimitConfig{Gate: &counting{}, Note: said.note, Rate: 1e-9, Burst: 1, Every: time.Millisecond})
	for range 4 {
		l.Do(context.Background(), by("a", ""))
	}
	<-said.came // the ledger refuses this entry
	said.mu.Lock()
	said.err = nil
	said.mu.Unlock()
	<-said.came
	l.Do(context.Background(), by("a", ""))
	<-said.came
	l.Close()
	total := 0
	for _, s := range said.list {
		total += s.Calls
	}
	if total != 4 {
		t.Errorf("%d calls were refused: %+v", total, said.list)
	}
}

// TestLimitIsBounded checks that callers that invent names share one bucket.
func TestLimitIsBounded(t *testing.T) {
	now := time.Now()
	gate := &counting{}
	l := NewLimit(LimitConfig{Gate: gate, Note: (&notes{}).note, Rate: 1, Burst: 2, Every: time.Hour, Now: func() time.Time { return now }})
	for n := range 3 * maxBuckets {
		l.Do(context.Background(), by(fmt.Sprint("agent ", n), ""))
	}
	if len(l.buckets) > maxBuckets+1 || gate.calls != maxBuckets+2 {
		t.Errorf("%d buckets, %d calls", len(l.buckets), gate.calls)
	}
	now = now.Add(time.Minute) // all buckets are full again
	l.Do(context.Background(), by("late", ""))
	if l.buckets[limitKey{"late", "", ""}] == nil || len(l.buckets) > 3 {
		t.Errorf("%d buckets", len(l.buckets))
	}
	l.Close()
}
