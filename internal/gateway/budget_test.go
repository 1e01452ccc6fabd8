package gateway

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bailey"
	"bailey/internal/gate"
)

func asked(session, agent, capability string) bailey.Request {
	return bailey.Request{Session: bailey.Session{ID: bailey.SessionID(session)}, Principal: bailey.Principal{Agent: agent, Person: "ada"},
		Capability: bailey.CapabilityID(capability)}
}

// TestBudgetBounds: each bound refuses the call after the one that reached it, names itself, and binds only whom it counts.
func TestBudgetBounds(t *testing.T) {
	for _, c := range []struct {
		name   string
		budget bailey.Budget
		use    gate.Use
		fit    int // calls that go before one is refused
		words  string
	}{
		{"calls", bailey.Budget{Calls: 3}, gate.Use{}, 3, "3 calls"},
		{"wall", bailey.Budget{Wall: time.Second}, gate.Use{Wall: 400 * time.Millisecond}, 3, "1s of running tools"},
		{"cpu", bailey.Budget{CPU: time.Second}, gate.Use{CPU: 500 * time.Millisecond}, 2, "1s of processor time"},
		{"output", bailey.Budget{Output: 100}, gate.Use{Output: 30}, 4, "100 bytes of output"},
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
				a.Settle(c.use) // counts once
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

// TestBudgetScope: what is not counted apart is counted together, and what is not named is not counted.
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

// TestBudgetWithin: a span begins with its first call, and when it is over counting begins anew; what runs still counts.
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

// TestBudgetRefusalCountsNothing: a call that one budget refuses takes nothing from another.
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

// TestBudgetConcurrent: however many ask at once, no more run than may.
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
