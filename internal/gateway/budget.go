package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/localapi/apitype"
)

// Budgets meters the use of calls and refuses a call if a budget is exhausted. If a budget is applied again under the
// same id and counts in the same way, its use is kept. Budgets is safe for concurrent use.
type Budgets struct {
	now func() time.Time

	mu     sync.Mutex // guards the fields below
	list   []bailey.Budget
	meters map[apitype.Account]*usage
	wait   error // why calls with a budget may not run yet
}

// usage is the use since a point in time, and the number of running calls.
type usage struct {
	key   apitype.Account
	since time.Time
	until time.Time // when counting restarts; zero: never
	used  gate.Use
	calls int
	open  int
	ended bool // the session has ended
}

// mostMeters is the maximum number of meters. Beyond it, a call that needs a new meter is refused.
const mostMeters = 100_000

// NewBudgets returns Budgets without any budget. If now is nil, it uses time.Now.
func NewBudgets(now func() time.Time) *Budgets {
	if now == nil {
		now = time.Now
	}
	return &Budgets{now: now, meters: map[apitype.Account]*usage{}}
}

// Set replaces all budgets.
func (b *Budgets) Set(list []bailey.Budget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := map[string]bool{}
	for _, now := range list {
		kept[now.ID] = slices.ContainsFunc(b.list, now.SameCount)
	}
	b.list = slices.Clone(list)
	for key := range b.meters {
		if !kept[key.Budget] {
			delete(b.meters, key)
		}
	}
}

// Hold refuses every call that has a budget, with why as the reason, until it is called with nil. It is used while the
// calls of earlier gateways are unknown.
func (b *Budgets) Hold(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wait = why
}

func keyOf(l bailey.Budget, r bailey.Request) apitype.Account {
	key := apitype.Account{Budget: l.ID}
	if l.Session {
		key.Session = r.Session.ID
	}
	if l.Agent {
		key.Agent, key.Person = r.Principal.Agent, r.Principal.Person
	}
	if l.Capability {
		key.Capability = r.Capability
	}
	return key
}

// meterOf returns the meter of a key. If its span is over, it is reset. The caller must hold b.mu.
func (b *Budgets) meterOf(key apitype.Account, within time.Duration, now time.Time) *usage {
	m := b.meters[key]
	if m == nil {
		if len(b.meters) >= mostMeters {
			maps.DeleteFunc(b.meters, func(_ apitype.Account, m *usage) bool { return m.open == 0 && m.isOver(now) })
		}
		if len(b.meters) >= mostMeters {
			return nil
		}
		m = &usage{key: key, since: now}
		b.meters[key] = m
	}
	if m.until = m.since.Add(within); within == 0 {
		m.until = time.Time{}
	}
	if m.isOver(now) {
		m.since, m.until, m.used, m.calls = now, now.Add(within), gate.Use{}, m.open
	}
	return m
}

func (m *usage) addUse(u gate.Use) {
	m.used.Wall += u.Wall
	m.used.CPU += u.CPU
	m.used.Output += u.Output
	m.used.InputTokens += u.InputTokens
	m.used.OutputTokens += u.OutputTokens
	m.used.MicroUSD += u.MicroUSD
}

func (m *usage) isOver(now time.Time) bool { return !m.until.IsZero() && !now.Before(m.until) }

// Take counts a call in every budget that applies to it. If one is exhausted, it counts the call in none and returns
// which one.
func (b *Budgets) Take(r bailey.Request) (gate.Allowance, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	var a gate.Allowance
	var meters []*usage
	for _, l := range b.list {
		if !l.Counts(r) {
			continue
		}
		if b.wait != nil {
			return a, b.wait
		}
		m := b.meterOf(keyOf(l, r), l.Within, now)
		if m == nil {
			return a, bailey.Unavailable.Errorf("end sessions that are not needed",
				"the use of %d budgets is stored already, the maximum", mostMeters)
		}
		if bound := m.reachedLimit(l); bound != "" {
			return a, exhaustedError(l, bound, m)
		}
		a = tightenAllowance(a, l, m)
		meters = append(meters, m)
	}
	for _, m := range meters {
		m.calls++
		m.open++
	}
	settled := false
	a.Settle = func(u gate.Use) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if settled {
			return
		}
		settled = true
		for _, m := range meters {
			m.open--
			m.addUse(u)
			if m.ended && m.open == 0 && b.meters[m.key] == m {
				delete(b.meters, m.key)
			}
		}
	}
	return a, nil
}

// Remember counts a call of an earlier gateway that began at the given time. Budgets per session are skipped, because
// sessions end with their gateway.
func (b *Budgets) Remember(r bailey.Request, at time.Time, u gate.Use) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.list {
		if l.Session || l.Within == 0 || at.Before(l.Since) || !l.Counts(r) {
			continue
		}
		if m := b.meterOf(keyOf(l, r), l.Within, at); m != nil {
			m.calls++
			m.addUse(u)
		}
	}
}

// Memory returns how far back calls still count.
func (b *Budgets) Memory() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var longest time.Duration
	for _, l := range b.list {
		if !l.Session {
			longest = max(longest, l.Within)
		}
	}
	return longest
}

// reachedLimit returns the limit that is reached, or "".
func (m *usage) reachedLimit(l bailey.Budget) string {
	switch {
	case l.Calls > 0 && m.calls >= l.Calls:
		return fmt.Sprintf("%d calls", l.Calls)
	case l.Concurrent > 0 && m.open >= l.Concurrent:
		return fmt.Sprintf("%d calls at one time", l.Concurrent)
	case l.Wall > 0 && m.used.Wall >= l.Wall:
		return fmt.Sprintf("%s of running tools", l.Wall)
	case l.CPU > 0 && m.used.CPU >= l.CPU:
		return fmt.Sprintf("%s of processor time", l.CPU)
	case l.Output > 0 && m.used.Output >= l.Output:
		return fmt.Sprintf("%d bytes of output", l.Output)
	case l.InputTokens > 0 && m.used.InputTokens >= l.InputTokens:
		return fmt.Sprintf("%d input tokens of models", l.InputTokens)
	case l.OutputTokens > 0 && m.used.OutputTokens >= l.OutputTokens:
		return fmt.Sprintf("%d output tokens of models", l.OutputTokens)
	case l.MicroUSD > 0 && m.used.MicroUSD >= l.MicroUSD:
		return apitype.Dollars(l.MicroUSD) + " for models"
	}
	return ""
}

func exhaustedError(l bailey.Budget, bound string, m *usage) error {
	err := bailey.Denied.Errorf("", "budget %s is used up: %s", l.ID, bound)
	spent := &bailey.SpentError{Cause: err}
	switch {
	case l.Concurrent > 0 && m.open >= l.Concurrent:
		err.Hint = "call again when one of them has ended"
	case l.Within > 0:
		spent.Until = m.since.Add(l.Within).UTC()
		err.Hint = "it is full again at " + spent.Until.Format(time.RFC3339)
	default:
		err.Hint = "it applies to one session; tell the person you work for"
	}
	return spent
}

// tightenAllowance reduces the allowance to the remainder of a budget if that is less.
func tightenAllowance(a gate.Allowance, l bailey.Budget, m *usage) gate.Allowance {
	if left := l.Wall - m.used.Wall; l.Wall > 0 && (a.Wall == 0 || left < a.Wall) {
		a.Wall, a.WallOf = left, l.ID
	}
	if left := l.Output - m.used.Output; l.Output > 0 && (a.Output == 0 || left < a.Output) {
		a.Output, a.OutputOf = left, l.ID
	}
	return a
}

// End removes the meters of a session when its last call has ended.
func (b *Budgets) End(id bailey.SessionID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, m := range b.meters {
		if key.Session != id {
			continue
		}
		if m.ended = true; m.open == 0 {
			delete(b.meters, key)
		}
	}
}

// State returns all meters, those with an exhausted budget first.
func (b *Budgets) State() []apitype.Spending {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []apitype.Spending{}
	for _, l := range b.list {
		n := len(list)
		for key, m := range b.meters {
			if key.Budget != l.ID {
				continue
			}
			s := apitype.Spending{Account: key, Since: m.since.UTC(), Calls: m.calls, Open: m.open, Wall: m.used.Wall,
				CPU:    m.used.CPU,
				Output: m.used.Output, InputTokens: m.used.InputTokens, OutputTokens: m.used.OutputTokens, MicroUSD: m.used.MicroUSD, Spent: m.reachedLimit(l), Limit: l}
			if l.Within > 0 {
				until := m.since.Add(l.Within).UTC()
				s.Until = &until
			}
			list = append(list, s)
		}
		if len(list) == n {
			list = append(list, apitype.Spending{Account: apitype.Account{Budget: l.ID}, Limit: l})
		}
	}
	slices.SortStableFunc(list, func(a, b apitype.Spending) int {
		return cmp.Or(cmp.Compare(b.Spent, a.Spent), cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Session, b.Session),
			cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Capability, b.Capability))
	})
	return list
}
