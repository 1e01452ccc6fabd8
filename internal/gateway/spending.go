package gateway

import (
	"cmp"
	"slices"

	"bailey/internal/localapi/apitype"
)

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
			s := apitype.Spending{Account: key, Since: m.since.UTC(), Calls: m.calls, Open: m.open, Wall: m.used.Wall, CPU: m.used.CPU,
				Output: m.used.Output, Spent: m.spent(l), Limit: l}
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
		return cmp.Or(cmp.Compare(b.Spent, a.Spent), cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Session, b.Session), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Capability, b.Capability))
	})
	return list
}
