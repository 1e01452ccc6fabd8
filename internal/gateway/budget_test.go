package gateway

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/localapi/apitype"
)

func asked(session, agent, capability string) bailey.Request {
	return bailey.Request{Session: bailey.Session{ID: bailey.SessionID(session)}, Principal: bailey.Principal{Agent: agent, Person: "ada"},
		Capability: bailey.CapabilityID(capability)}
}

// TestBudgetBounds checks that each limit refuses the call after the one that reached it, that the error names the
// limit, and that other sessions are not affected.
func TestBudgetBounds(t *testing.T) {
	for _, c := range []struct {
		name   string
		budget bailey.Budget
		use    gate.Use
		fit    int // calls before the first refusal
		words  string
	}{
		{"calls", bailey.Budget{Calls: 3}, gate.Use{}, 3, "3 calls"},
		{"wall", bailey.Budget{Wall: time.Second}, gate.Use{Wall: 400 * time.Millisecond}, 3, "1s of running tools"},
		{"cpu", bailey.Budget{CPU: time.Second}, gate.Use{CPU: 500 * time.Millisecond}, 2, "1s of processor time"},
		{"output", bailey.Budget{Output: 100}, gate.Use{Output: 30}, 4, "100 bytes of output"},
		{"input tokens", bailey.Budget{InputTokens: 900}, gate.Use{InputTokens: 400}, 3, "900 input tokens of models"},
		{"output tokens", bailey.Budget{OutputTokens: 100}, gate.Use{OutputTokens: 60}, 2, "100 output tokens of models"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBudgets(nil)
			c.budget.ID, c.budget.Session = "looks", true
			b.Set([]bailey.Budget{c.budget})
			for i := range c.fit {
				a, err := b.Take(asked("s-1", "claude", "git.log"))
				if err != nil {
					t.Fatalf("call %d: %v", i, err)
				}
				a.Settle(c.use)
				a.Settle(c.use) // must count once
			}
			_, err := b.Take(asked("s-1", "claude", "git.log"))
			if bailey.KindOf(err) != bailey.Denied || !strings.Contains(err.Error(), "looks") || !strings.Contains(err.Error(), c.words) || bailey.HintOf(err) == "" {
				t.Errorf("%v; %s", err, bailey.HintOf(err))
			}
			if _, err := b.Take(asked("s-2", "claude", "git.log")); err != nil {
				t.Errorf("another session: %v", err)
			}
		})
	}
}

// TestBudgetScope checks that a budget counts calls together unless it separates them, and that it counts only the
// calls that it names.
func TestBudgetScope(t *testing.T) {
	b := NewBudgets(nil)
	b.Set([]bailey.Budget{
		{ID: "per-capability", Session: true, Capability: true, Capabilities: []bailey.CapabilityID{"git.log", "git.diff"}, Calls: 1},
		{ID: "per-agent", Agent: true, Agents: []string{"claude"}, Calls: 3},
	})
	for _, c := range []struct {
		r    bailey.Request
		fits bool
	}{
		{asked("s-1", "claude", "git.log"), true}, {asked("s-1", "claude", "git.log"), false}, {asked("s-1", "claude", "git.diff"), true},
		{asked("s-2", "claude", "git.log"), true}, {asked("s-3", "claude", "git.status"), false}, // the agent's fourth
		{asked("s-3", "cursor", "git.status"), true}, {asked("s-3", "cursor", "git.status"), true},
	} {
		if _, err := b.Take(c.r); (err == nil) != c.fits {
			t.Errorf("%s in %s by %s: %v", c.r.Capability, c.r.Session.ID, c.r.Principal.Agent, err)
		}
	}
	if n := len(b.State()); n != 4 {
		t.Errorf("%d accounts: %+v", n, b.State())
	}
	b.End("s-1")
	if n := len(b.State()); n != 4 {
		t.Errorf("an account was forgotten while its call is open: %d", n)
	}
}

// TestBudgetWithin checks that a span begins with its first call, that counting begins again when the span is over, and
// that a running call still counts.
func TestBudgetWithin(t *testing.T) {
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	b := NewBudgets(func() time.Time { return now })
	b.Set([]bailey.Budget{{ID: "hourly", Agent: true, Within: time.Hour, Calls: 2, Wall: time.Minute}})
	long, err := b.Take(asked("s-1", "a", "git.log"))
	if err != nil || long.Wall != time.Minute || long.WallOf != "hourly" {
		t.Fatalf("%+v, %v", long, err)
	}
	second, _ := b.Take(asked("s-1", "a", "git.log"))
	second.Settle(gate.Use{Wall: 20 * time.Second})
	now = now.Add(59 * time.Minute)
	if _, err := b.Take(asked("s-1", "a", "git.log")); err == nil || !strings.Contains(bailey.HintOf(err), "2026-11-22T10:00:00Z") {
		t.Errorf("%v; %s", err, bailey.HintOf(err))
	}
	now = now.Add(time.Minute)
	if a, err := b.Take(asked("s-1", "a", "git.log")); err != nil || a.Wall != time.Minute {
		t.Errorf("in the next hour: %+v, %v", a, err)
	}
	if _, err := b.Take(asked("s-1", "a", "git.log")); err == nil {
		t.Error("the call that runs since the hour before does not count")
	}
}

// TestBudgetRefusalCountsNothing checks that if one budget refuses a call, the call does not count in another.
func TestBudgetRefusalCountsNothing(t *testing.T) {
	b := NewBudgets(nil)
	b.Set([]bailey.Budget{{ID: "wide", Agent: true, Calls: 2}, {ID: "narrow", Session: true, Calls: 1}})
	for range 5 {
		b.Take(asked("s-1", "a", "git.log"))
	}
	if _, err := b.Take(asked("s-2", "a", "git.log")); err != nil {
		t.Errorf("the refused calls took from the wide budget: %v", err)
	}
}

// TestBudgetConcurrent checks that no more calls run at once than the budget allows.
func TestBudgetConcurrent(t *testing.T) {
	b := NewBudgets(nil)
	b.Set([]bailey.Budget{{ID: "few", Session: true, Concurrent: 3}})
	var running, most, refused atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 200 {
				a, err := b.Take(asked("s-1", "a", "git.log"))
				if err != nil {
					refused.Add(1)
					continue
				}
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(10 * time.Microsecond)
				running.Add(-1)
				a.Settle(gate.Use{})
			}
		})
	}
	all.Wait()
	if most.Load() > 3 || refused.Load() == 0 {
		t.Errorf("%d at one time, %d refused", most.Load(), refused.Load())
	}
	b.End("s-1")
	if s := b.State(); len(s) != 1 || s[0].Session != "" {
		t.Errorf("a session that ended is still metered: %+v", s)
	}
}

// TestBudgetEndWhileOpen checks that if a session ends before its last call, nothing of it is kept after that call.
func TestBudgetEndWhileOpen(t *testing.T) {
	b := NewBudgets(nil)
	b.Set([]bailey.Budget{{ID: "few", Session: true, Calls: 3}, {ID: "wide", Agent: true, Within: time.Hour, Calls: 3}})
	first, _ := b.Take(asked("s-1", "a", "git.log"))
	second, _ := b.Take(asked("s-1", "a", "git.log"))
	b.End("s-1")
	first.Settle(gate.Use{})
	if n := len(b.meters); n != 2 {
		t.Errorf("%d meters while a call runs", n)
	}
	second.Settle(gate.Use{})
	if n := len(b.meters); n != 1 {
		t.Errorf("%d meters: %+v", n, b.State())
	}
}

// TestBudgetMakesRoom checks that accounts whose span is over do not prevent new ones.
func TestBudgetMakesRoom(t *testing.T) {
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	b := NewBudgets(func() time.Time { return now })
	b.Set([]bailey.Budget{{ID: "hourly", Agent: true, Within: time.Hour, Calls: 1}})
	take := func(agent string) error {
		a, err := b.Take(asked("s", agent, "git.log"))
		if err == nil {
			a.Settle(gate.Use{})
		}
		return err
	}
	for i := range mostMeters {
		if err := take(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := take("one more"); bailey.KindOf(err) != bailey.Unavailable || bailey.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	if err := take("0"); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("one that is known: %v", err)
	}
	now = now.Add(time.Hour)
	if _, err := b.Take(asked("s", "0", "git.log")); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	if err := take("one more"); err != nil {
		t.Errorf("an hour later: %v", err)
	}
	if err := take("0"); err == nil {
		t.Error("the call that still runs was forgotten")
	}
}

// TestBudgetAllowance checks that the tightest budget of a call limits it, by the amount that was left when the call
// began.
func TestBudgetAllowance(t *testing.T) {
	b := NewBudgets(nil)
	b.Set([]bailey.Budget{
		{ID: "wide", Session: true, Wall: time.Hour, Output: 100}, {ID: "narrow", Session: true, Capability: true, Wall: time.Minute, Output: 1000}, {ID: "counts", Session: true, Calls: 9},
	})
	a, err := b.Take(asked("s", "a", "git.log"))
	if err != nil || a.Wall != time.Minute || a.WallOf != "narrow" || a.Output != 100 || a.OutputOf != "wide" {
		t.Fatalf("%+v %v", a, err)
	}
	a.Settle(gate.Use{Wall: 20 * time.Second, Output: 30})
	if a, err = b.Take(asked("s", "a", "git.log")); err != nil || a.Wall != 40*time.Second || a.Output != 70 {
		t.Errorf("%+v %v", a, err)
	}
	if a, err = b.Take(asked("s", "a", "git.diff")); err != nil || a.Wall != time.Minute || a.WallOf != "narrow" || a.Output != 70 {
		t.Errorf("of another capability: %+v %v", a, err)
	}
}

// TestBudgetRemembers checks that calls of another gateway count in their span, except in budgets per session.
func TestBudgetRemembers(t *testing.T) {
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	b := NewBudgets(func() time.Time { return now })
	b.Set([]bailey.Budget{{ID: "s", Session: true, Within: time.Hour, Calls: 1}, {ID: "hourly", Agent: true, Within: time.Hour, Calls: 3, CPU: time.Minute}, {ID: "daily", Agent: true, Within: 24 * time.Hour, Calls: 9},
		{ID: "other", Agent: true, Within: time.Hour, Calls: 9, Capabilities: []bailey.CapabilityID{"git.diff"}}})
	if b.Memory() != 24*time.Hour {
		t.Errorf("looks back %v", b.Memory())
	}
	for _, ago := range []time.Duration{90 * time.Minute, 29 * time.Minute, 20 * time.Minute} {
		b.Remember(asked("s-0", "a", "git.log"), now.Add(-ago), gate.Use{CPU: time.Second, Wall: 2 * time.Second, Output: 3})
	}
	got := map[string]apitype.Spending{}
	for _, s := range b.State() {
		got[s.Budget] = s
	}
	if s := got["hourly"]; s.Calls != 2 || s.CPU != 2*time.Second || s.Wall != 4*time.Second || s.Output != 6 || !s.Since.Equal(now.Add(-29*time.Minute)) || s.Open != 0 {
		t.Errorf("%+v", s)
	}
	if got["daily"].Calls != 3 || got["s"].Calls != 0 || got["other"].Calls != 0 {
		t.Errorf("%+v", got)
	}
}

// TestBudgetHolds checks that a call that a budget limits does not run until the earlier use is known, and that other
// calls run.
func TestBudgetHolds(t *testing.T) {
	b := NewBudgets(nil)
	b.Set([]bailey.Budget{{ID: "hourly", Agent: true, Within: time.Hour, Calls: 2, Capabilities: []bailey.CapabilityID{"git.log"}}})
	why := &bailey.Error{Kind: bailey.Unavailable, Message: "not yet"}
	b.Hold(why)
	if _, err := b.Take(asked("s", "a", "git.log")); err != why {
		t.Errorf("held: %v", err)
	}
	if _, err := b.Take(asked("s", "a", "git.diff")); err != nil {
		t.Errorf("unbounded: %v", err)
	}
	b.Remember(asked("s", "a", "git.log"), time.Now().Add(-time.Minute), gate.Use{})
	b.Hold(nil)
	if _, err := b.Take(asked("s", "a", "git.log")); err != nil {
		t.Errorf("let go: %v", err)
	}
	if _, err := b.Take(asked("s", "a", "git.log")); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("what was remembered does not count: %v", err)
	}
}

// TestBudgetSet checks that a budget that is applied again keeps its count and that a removed one is forgotten. A call
// that was counted before must not settle anything after that.
func TestBudgetSet(t *testing.T) {
	few, other := bailey.Budget{ID: "few", Session: true, Calls: 2}, bailey.Budget{ID: "other", Session: true, Calls: 2}
	b := NewBudgets(nil)
	b.Set([]bailey.Budget{few})
	a, err := b.Take(asked("s", "a", "git.log"))
	if err != nil {
		t.Fatal(err)
	}
	few.Calls = 1
	b.Set([]bailey.Budget{few, other})
	if _, err := b.Take(asked("s", "a", "git.log")); err == nil {
		t.Error("what was used is forgotten")
	}
	b.End("s")
	b.Set([]bailey.Budget{other})
	b.Set([]bailey.Budget{few})
	if _, err := b.Take(asked("s", "a", "git.log")); err != nil {
		t.Errorf("what is gone still counts: %v", err)
	}
	a.Settle(gate.Use{})
	if s := b.State(); len(s) != 1 || s[0].Open != 1 {
		t.Errorf("a call of before settles another's account: %+v", s)
	}
}

// TestBudgetOfPersons checks that the same agent of two people counts as two agents.
func TestBudgetOfPersons(t *testing.T) {
	b := NewBudgets(nil)
	b.Set([]bailey.Budget{{ID: "few", Agent: true, Within: time.Hour, Calls: 1}})
	for _, person := range []string{"ada", "bob"} {
		r := asked("s", "a", "git.log")
		r.Principal.Person = person
		if _, err := b.Take(r); err != nil {
			t.Errorf("%s: %v", person, err)
		}
	}
}

// TestBudgetCountsSince checks that a budget begins again if it counts in another way, in the running gateway and in
// the next one, and that it continues if only its limits change.
func TestBudgetCountsSince(t *testing.T) {
	begin := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	now := begin
	b := NewBudgets(func() time.Time { return now })
	l := bailey.Budget{ID: "daily", Agent: true, Within: 24 * time.Hour, Calls: 2}
	b.Set([]bailey.Budget{l})
	for range 2 {
		if _, err := b.Take(asked("s-1", "a", "git.log")); err != nil {
			t.Fatal(err)
		}
	}
	l.Calls = 3
	b.Set([]bailey.Budget{l})
	if _, err := b.Take(asked("s-1", "a", "git.log")); err != nil {
		t.Errorf("a wider bound: %v", err)
	}
	if _, err := b.Take(asked("s-1", "a", "git.log")); err == nil {
		t.Error("a wider bound forgot what was used")
	}
	now = now.Add(time.Hour)
	l.Capability, l.Since = true, now
	b.Set([]bailey.Budget{l})
	if _, err := b.Take(asked("s-1", "a", "git.log")); err != nil {
		t.Errorf("counted in another way: %v", err)
	}
	next := NewBudgets(func() time.Time { return now })
	next.Set([]bailey.Budget{l})
	// two before the change, one after it
	for at := begin; at.Before(now.Add(2 * time.Minute)); at = at.Add(30 * time.Minute) {
		next.Remember(asked("s-1", "a", "git.log"), at, gate.Use{})
	}
	if s := next.State(); len(s) != 1 || s[0].Calls != 1 {
		t.Errorf("remembered %+v", s)
	}
}
