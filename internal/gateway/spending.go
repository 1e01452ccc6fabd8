package gateway

import (
	"cmp"
	"slices"
	"time"

	"bailey"
)

// Spending is the use of a budget.
type Spending struct {
	account
	Since  time.Time     `json:"since"`
	Until  *time.Time    `json:"until,omitempty"` // when counting restarts
	Calls  int           `json:"calls"`
	Open   int           `json:"open"` // calls that run now
	Wall   time.Duration `json:"wall"`
	CPU    time.Duration `json:"cpu"`
	Output int64         `json:"output"`
	Spent  string        `json:"spent,omitempty"` // the limit that is reached
	Limit  bailey.Budget `json:"limit"`
}

// State returns all meters, those with an exhausted budget first.
func (b *Budgets) State() []Spending {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []Spending{}
	for _, l := range b.list {
		n := len(list)
		for key, m := range b.meters {
			if key.Budget != l.ID {
				continue
			}
			s := Spending{account: key, Since: m.since.UTC(), Calls: m.calls, Open: m.open, Wall: m.used.Wall, CPU: m.used.CPU,
				Output: m.used.Output, Spent: m.spent(l), Limit: l}
			if l.Within > 0 {
				until := m.since.Add(l.Within).UTC()
				s.Until = &until
			}
			list = append(list, s)
		}
		if len(list) == n {
			list = append(list, Spending{account: account{Budget: l.ID}, Limit: l})
		}
	}
	slices.SortStableFunc(list, func(a, b Spending) int {
		return cmp.Or(cmp.Compare(b.Spent, a.Spent), cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Session, b.Session), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Capability, b.Capability))
	})
	return list
}
