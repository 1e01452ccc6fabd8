package apitype

import (
	"slices"
	"time"

	"bailey"
)

// Limits of the remembered wraps: the number of runs, of refusals in total, and of refusals in one entry.
const (
	maxWraps        = 32
	MaxWrapRefusals = 256
	MaxRefusals     = 64
)

// WrapsKnown is the state of agents in the agent jail that a gateway remembers, the newest last.
type WrapsKnown struct {
	Runs    []wrapRun   `json:"runs,omitempty"`
	Refused []RefusedTo `json:"refused,omitempty"`
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

// RefusedTo is a refusal of a run.
type RefusedTo struct {
	N   uint64 `json:"n"`
	Run string `json:"run"`
	Refusal
}

func (k *WrapsKnown) Start(w WrapStarting) {
	k.Runs = Last(append(k.Runs[:len(k.Runs):len(k.Runs)], wrapRun{ID: w.ID, Agent: w.Agent, Project: w.Project, Session: w.Session, Started: w.At}), maxWraps)
}

func (k *WrapsKnown) Refuse(w WrapRefusals) {
	k.with(w.ID, func(r *wrapRun) { r.Untold += w.Untold })
	all := k.Refused[:len(k.Refused):len(k.Refused)] // a copy, because other goroutines may hold the old list
	for _, l := range w.Lines {
		k.Count++
		all = append(all, RefusedTo{N: k.Count, Run: w.ID, Refusal: l})
	}
	k.Refused = lastOfEach(all, MaxWrapRefusals)
}

// lastOfEach returns the last n refusals. If one kind makes up more than half of them, its oldest are dropped first, so
// that one frequently repeated refusal does not displace the others.
func lastOfEach(all []RefusedTo, n int) []RefusedTo {
	most := map[string]int{}
	for _, r := range all {
		most[r.Kind]++
	}
	over := len(all) - n
	return Last(slices.DeleteFunc(slices.Clone(all), func(r RefusedTo) bool {
		drop := over > 0 && most[r.Kind] > n/2
		if drop {
			over--
			most[r.Kind]--
		}
		return drop
	}), n)
}

func (k *WrapsKnown) End(w WrapEnding) {
	k.with(w.ID, func(r *wrapRun) { r.Ended, r.ExitCode, r.Moved, r.Dir = w.At, w.ExitCode, w.Moved, w.Dir })
}

func (k *WrapsKnown) with(id string, do func(*wrapRun)) {
	runs := append([]wrapRun(nil), k.Runs...)
	for i := range runs {
		if runs[i].ID == id {
			do(&runs[i])
		}
	}
	k.Runs = runs
}

func Last[T any](list []T, n int) []T { return list[max(0, len(list)-n):] }

// Agent returns the agent of a refusal, or the id of the run if that is no longer remembered.
func (k WrapsKnown) Agent(r RefusedTo) string {
	for _, run := range k.Runs {
		if run.ID == r.Run {
			return run.Agent
		}
	}
	return r.Run
}
