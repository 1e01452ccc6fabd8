package gate

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"bailey"
)

// TestBudgetIsSettled checks that a budget that was taken is settled once on every exit, with the tool's use, and that
// a call that takes nothing settles nothing.
func TestBudgetIsSettled(t *testing.T) {
	denied := &bailey.Error{Kind: bailey.Denied, Message: "no"}
	for name, c := range map[string]struct {
		set     func(*world)
		settled int
		output  int64
	}{
		"ok":                {func(*world) {}, 1, 6},
		"tool fails":        {func(w *world) { w.run = exits(bailey.Exit{Code: 7}) }, 1, 0},
		"nothing lent":      {func(w *world) { w.lendErr = errBroken }, 1, 0},
		"panic in run":      {func(w *world) { w.panicAt = "run -- hello" }, 1, 0},
		"post hook breaks":  {func(w *world) { w.postErr = errBroken }, 1, 6},
		"budget spent":      {func(w *world) { w.takeErr = denied }, 0, 0},
		"denied at last":    {func(w *world) { w.decide = denyAt(2) }, 0, 0},
		"ledger fails late": {func(w *world) { w.sealErr = errBroken }, 1, 6},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.set(w)
			w.gate().Do(t.Context(), call())
			if len(w.settled) != c.settled {
				t.Fatalf("settled %d times after %v", len(w.settled), w.did)
			}
			if c.settled == 0 {
				return
			}
			if u := w.settled[0]; u.Output != c.output || (u.Wall > 0) != w.happened("run -- hello") && name != "panic in run" {
				t.Errorf("%+v", u)
			}
			if w.taken.Capability != "t.echo" || w.taken.Principal.Agent != "a" || w.taken.Session.ID != "s-1" {
				t.Errorf("taken for %+v", w.taken)
			}
		})
	}
}

func denyAt(n int) func(int, bailey.Request) bailey.Decision {
	return func(i int, _ bailey.Request) bailey.Decision {
		if i == n {
			return bailey.Decision{Reason: "because"}
		}
		return bailey.Decision{Effect: bailey.Allow}
	}
}

// TestAllowanceEndsTheTool checks that a tool that exceeds the rest of its budget is ended, and that the error names
// the budget.
func TestAllowanceEndsTheTool(t *testing.T) {
	for name, c := range map[string]struct {
		left   Allowance
		gentle bool // it gets time to end by itself
	}{
		"wall": {Allowance{Wall: 20 * time.Millisecond, WallOf: "hourly"}, true},
		// it ends by itself when it is told to
		"meekly": {Allowance{Wall: 20 * time.Millisecond, WallOf: "hourly"}, true},
		"output": {Allowance{Output: 10, OutputOf: "hourly"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.left = c.left
			w.runs = func(ctx context.Context, s bailey.Streams) (bailey.Exit, error) {
				io.WriteString(s.Stdout, "ten bytes.")
				if name == "output" && ctx.Err() != nil {
					t.Error("ended before it passed its bound")
				}
				io.WriteString(s.Stderr, strings.Repeat("x", 10))
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
					t.Error("nothing ended it")
				}
				if got := errors.As(context.Cause(ctx), new(bailey.Gentle)); got != c.gentle {
					t.Errorf("gentle %v", got)
				}
				if name == "meekly" {
					return bailey.Exit{Code: 143}, nil
				}
				return bailey.Exit{Code: 137}, context.Cause(ctx)
			}
			res := w.gate().Do(t.Context(), call())
			if bailey.KindOf(res.Err) != bailey.ToolFailed || !strings.Contains(res.Err.Error(), "budget hourly is used up") || !res.Executed {
				t.Errorf("%+v", res)
			}
			if o := w.one(); o.Status != bailey.Failed || o.RanMillis < 0 {
				t.Errorf("%+v", o)
			}
		})
	}
}
