package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"bailey/internal/wire"

	"bailey"
)

// Limits of the remembered wraps: the number of runs, of refusals in total, and of refusals in one entry.
const (
	maxWraps        = 32
	maxWrapRefusals = 256
	maxRefusals     = 64
)

// wrapsKnown is the state of agents in the agent jail that a gateway remembers, the newest last.
type wrapsKnown struct {
	Runs    []wrapRun   `json:"runs,omitempty"`
	Refused []refusedTo `json:"refused,omitempty"`
	Count   uint64      `json:"count,omitempty"` // total number of refusals
}

// wrapRun is one run of an agent.
type wrapRun struct {
	ID       string           `json:"id"`
	Agent    string           `json:"agent"`
	Project  string           `json:"project"`
	Session  bailey.SessionID `json:"session"`
	Started  time.Time        `json:"started"`
	Ended    time.Time        `json:"ended,omitzero"`
	ExitCode int              `json:"exitCode,omitempty"`
	Untold   int64            `json:"untold,omitempty"` // refusals that were not reported
	Moved    []string         `json:"quarantined,omitempty"`
	Dir      string           `json:"quarantine,omitempty"`
}

// refusedTo is a refusal of a run.
type refusedTo struct {
	N   uint64 `json:"n"`
	Run string `json:"run"`
	refusal
}

func (k *wrapsKnown) start(w wrapStarting) {
	k.Runs = last(append(k.Runs[:len(k.Runs):len(k.Runs)], wrapRun{ID: w.ID, Agent: w.Agent, Project: w.Project, Session: w.Session, Started: w.At}), maxWraps)
}

func (k *wrapsKnown) refuse(w wrapRefusals) {
	k.with(w.ID, func(r *wrapRun) { r.Untold += w.Untold })
	all := k.Refused[:len(k.Refused):len(k.Refused)] // a copy, because other goroutines may hold the old list
	for _, l := range w.Lines {
		k.Count++
		all = append(all, refusedTo{N: k.Count, Run: w.ID, refusal: l})
	}
	k.Refused = lastOfEach(all, maxWrapRefusals)
}

// lastOfEach returns the last n refusals. If one kind makes up more than half of them, its oldest are dropped first, so
// that one frequently repeated refusal does not displace the others.
func lastOfEach(all []refusedTo, n int) []refusedTo {
	most := map[string]int{}
	for _, r := range all {
		most[r.Kind]++
	}
	over := len(all) - n
	return last(slices.DeleteFunc(slices.Clone(all), func(r refusedTo) bool {
		drop := over > 0 && most[r.Kind] > n/2
		if drop {
			over--
			most[r.Kind]--
		}
		return drop
	}), n)
}

func (k *wrapsKnown) end(w wrapEnding) {
	k.with(w.ID, func(r *wrapRun) { r.Ended, r.ExitCode, r.Moved, r.Dir = w.At, w.ExitCode, w.Moved, w.Dir })
}

func (k *wrapsKnown) with(id string, do func(*wrapRun)) {
	runs := append([]wrapRun(nil), k.Runs...)
	for i := range runs {
		if runs[i].ID == id {
			do(&runs[i])
		}
	}
	k.Runs = runs
}

func last[T any](list []T, n int) []T { return list[max(0, len(list)-n):] }

// wraps is the query of wrap --log.
func (s *stack) wraps(context.Context, wire.Query, bailey.Call) (any, error) {
	return s.wrapsNow(), nil
}

func (s *stack) wrapsNow() wrapsKnown {
	s.scribe.mu.Lock()
	defer s.scribe.mu.Unlock()
	return s.scribe.lore.Wraps
}

// agent returns the agent of a refusal, or the id of the run if that is no longer remembered.
func (k wrapsKnown) agent(r refusedTo) string {
	for _, run := range k.Runs {
		if run.ID == r.Run {
			return run.Agent
		}
	}
	return r.Run
}

// wrapLog prints the refusals. With follow it queries every second.
func (a *app) wrapLog(ctx context.Context, follow bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	var shown uint64
	for {
		var k wrapsKnown
		if err := c.Look(ctx, wire.Query{Verb: wrapsLook}, &k); err != nil {
			return err
		}
		if a.json && !follow {
			return a.print(k)
		}
		for _, r := range k.Refused {
			if r.N <= shown {
				continue
			}
			shown = r.N
			if a.json {
				err = a.print(r)
			} else {
				err = a.refusalLine(k, r)
			}
			if err != nil {
				return err
			}
		}
		if !follow {
			if shown == 0 {
				_, err = fmt.Fprintln(a.stdout, "nothing was refused to an agent inside the wall")
			}
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (a *app) refusalLine(k wrapsKnown, r refusedTo) error {
	_, err := fmt.Fprintf(a.stdout, "%s  %s  %s\n", r.At.Local().Format(time.DateTime), visible(k.agent(r)), visible(r.Reason))
	if err == nil && r.Hint != "" {
		_, err = fmt.Fprintf(a.stdout, "  %s\n", visible(r.Hint))
	}
	return err
}
