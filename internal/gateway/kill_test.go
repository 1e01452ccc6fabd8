package gateway

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/localapi/apitype"
)

// slowGate carries calls until their context ends, and reports the cause.
type slowGate struct {
	begun chan struct{}
	ended chan error
}

func (g slowGate) Do(ctx context.Context, _ bailey.Call) bailey.Result {
	g.begun <- struct{}{}
	<-ctx.Done()
	g.ended <- context.Cause(ctx)
	return bailey.Result{Status: bailey.Killed, Err: context.Cause(ctx)}
}

func (slowGate) EndSession(context.Context, bailey.SessionID) error { return nil }

type allows struct{}

func (allows) Decide(bailey.Request) bailey.Decision {
	return bailey.Decision{Effect: bailey.Allow, Policy: "p"}
}

// TestKillStopsAll checks that every running call is ended, and that further calls are denied at the policy decision
// until an operator resumes.
func TestKillStopsAll(t *testing.T) {
	var notes []string
	var mu sync.Mutex
	k := NewKillSwitch(apitype.Killed{}, func(_ context.Context, kind string, _ any) error {
		mu.Lock()
		defer mu.Unlock()
		notes = append(notes, kind)
		return nil
	})
	g := slowGate{make(chan struct{}, 3), make(chan error, 3)}
	k.Gate = g
	for range 3 {
		go k.Do(t.Context(), bailey.Call{})
	}
	for range 3 {
		<-g.begun
	}
	if d := k.Before(allows{}).Decide(bailey.Request{}); d.Effect != bailey.Allow {
		t.Fatalf("before: %+v", d)
	}
	state, err := k.Kill(t.Context(), "an agent runs wild", "ada")
	if err != nil || state.Calls != 3 || !k.State().On() {
		t.Fatalf("%+v, %v", state, err)
	}
	for range 3 {
		if err := <-g.ended; !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "the kill switch was activated (an agent runs wild)") {
			t.Errorf("a call ended with %v", err)
		}
	}
	d := k.Before(allows{}).Decide(bailey.Request{})
	if d.Effect != bailey.Deny || !strings.Contains(d.Reason, "an agent runs wild") || d.Policy != "" {
		t.Errorf("while it is thrown: %+v", d)
	}
	if again, err := k.Kill(t.Context(), "again", "bob"); err != nil || again.Calls != 0 || k.State().Reason != "an agent runs wild" {
		t.Errorf("thrown twice: %+v, %v; state %+v", again, err, k.State())
	}
	if _, err := k.Resume(t.Context(), Resumed{}); err != nil {
		t.Fatal(err)
	}
	if d := k.Before(allows{}).Decide(bailey.Request{}); d.Effect != bailey.Allow {
		t.Errorf("resumed: %+v", d)
	}
	if _, err := k.Resume(t.Context(), Resumed{}); bailey.KindOf(err) != bailey.Conflict {
		t.Errorf("resumed twice: %v", err)
	}
	if want := "kill kill resume"; strings.Join(notes, " ") != want {
		t.Errorf("noted %v, want %s", notes, want)
	}
}

// TestKillIsRecordedFirst checks that pending questions are withdrawn after the kill is recorded, and also if it cannot
// be recorded. A thousand withdrawals take time, and if the gateway ends meanwhile, the next one must not carry calls.
func TestKillIsRecordedFirst(t *testing.T) {
	for _, fails := range []bool{false, true} {
		var order []string
		k := NewKillSwitch(apitype.Killed{}, func(_ context.Context, kind string, _ any) error {
			order = append(order, kind)
			if fails {
				return errors.New("the disk is full")
			}
			return nil
		})
		k.Withdraw = func(reason string) { order = append(order, reason) }
		if _, err := k.Kill(t.Context(), "wild", "ada"); (err != nil) != fails {
			t.Error(err)
		}
		if len(order) != 2 || order[0] != KillEvent || !strings.HasPrefix(order[1], "withdrawn: the kill switch was activated (wild)") {
			t.Errorf("%q", order)
		}
	}
}

// TestKillWithoutALedger checks that a kill stops all calls even if it cannot be recorded, and that a resume has no
// effect if it cannot be recorded.
func TestKillWithoutALedger(t *testing.T) {
	k := NewKillSwitch(apitype.Killed{}, func(context.Context, string, any) error { return errors.New("the disk is full") })
	if _, err := k.Kill(t.Context(), "", ""); err == nil || !k.State().On() {
		t.Errorf("%v; thrown: %v", err, k.State().On())
	}
	if _, err := k.Resume(t.Context(), Resumed{}); err == nil || !k.State().On() {
		t.Errorf("resumed without a record: %v", err)
	}
}

// TestKillIsRemembered checks that a gateway starts stopped if the last one was stopped.
func TestKillIsRemembered(t *testing.T) {
	k := NewKillSwitch(apitype.Killed{At: time.Now(), Reason: "before"}, nil)
	if d := k.Before(allows{}).Decide(bailey.Request{}); d.Effect != bailey.Deny || !strings.Contains(d.Reason, "before") {
		t.Errorf("%+v", d)
	}
}

// TestResumeRacesKill checks that the gateway does as the last event in the ledger says if a kill and a resume race.
// Otherwise a new gateway would carry calls that the one before refused.
func TestResumeRacesKill(t *testing.T) {
	reached, written := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	last := ""
	k := NewKillSwitch(apitype.Killed{At: time.Now()}, func(_ context.Context, kind string, _ any) error {
		if kind == ResumeEvent {
			close(reached)
			<-written
		}
		mu.Lock()
		defer mu.Unlock()
		last = kind
		return nil
	})
	var both sync.WaitGroup
	both.Go(func() { k.Resume(t.Context(), Resumed{}) })
	<-reached
	both.Go(func() { k.Kill(t.Context(), "again", "bob") })
	for { // the kill takes effect before it is recorded, even if the ledger blocks
		k.mu.Lock()
		thrown := k.thrown
		k.mu.Unlock()
		if thrown == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	close(written)
	both.Wait()
	if last != KillEvent || !k.State().On() {
		t.Errorf("the ledger ends with %s, and the switch is thrown: %v", last, k.State().On())
	}
}

// TestKillWhileTheLedgerStands checks that running calls end before the ledger has recorded the event.
func TestKillWhileTheLedgerStands(t *testing.T) {
	stuck := make(chan struct{})
	k := NewKillSwitch(apitype.Killed{}, func(context.Context, string, any) error { <-stuck; return nil })
	g := slowGate{make(chan struct{}, 1), make(chan error, 1)}
	k.Gate = g
	go k.Do(t.Context(), bailey.Call{})
	<-g.begun
	done := make(chan struct{})
	go func() { defer close(done); k.Kill(t.Context(), "", "") }()
	if err := <-g.ended; !strings.Contains(err.Error(), "the kill switch was activated") {
		t.Errorf("ended with %v", err)
	}
	if d := k.Before(allows{}).Decide(bailey.Request{}); d.Effect != bailey.Deny {
		t.Errorf("%+v", d)
	}
	close(stuck)
	<-done
}
