package control

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/fleet"
	"bailey/internal/store"
)

// This file sums what requests to models cost on all gateways, and distributes budgets. The receipts of the gateways, which
// they sign, are the report: there is no other one that could differ from them. A gateway applies a budget in addition to
// those of its own policy, so a budget can only refuse.

func (s *Server) spendRoutes() {
	const one = "/api/v1/organisations/{organisation}"
	member, admin := Access{Role: store.Member}, Access{Role: store.Admin}
	addRoute(s, "GET", one+"/spend", "list-spend", "What requests to models have cost, by day, agent and person", admin, s.listSpend)
	addRoute(s, "GET", one+"/budgets", "list-budgets", "What models may cost on all gateways together", member, s.listBudgets)
	addRoute(s, "POST", one+"/budgets", "add-budget", "Set a budget: gateways apply it in addition to those of their policy",
		admin, s.addBudget)
	addRoute(s, "DELETE", one+"/budgets/{id}", "end-budget", "End a budget", admin, s.endBudget)
}

// changedSet collects organisations.
type changedSet struct {
	mu  sync.Mutex
	set map[string]bool
}

func (c *changedSet) mark(organisation string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set == nil {
		c.set = map[string]bool{}
	}
	c.set[organisation] = true
}

// drain returns the organisations, and forgets them.
func (c *changedSet) drain() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.set
	c.set = nil
	return all
}

// tellSpent tells the gateways of organisations what others have spent.
func (s *Server) tellSpent(ctx context.Context) {
	for organisation := range s.spent.drain() {
		if err := s.toAll(ctx, organisation, s.sendBudgets); err != nil && ctx.Err() == nil {
			s.Log.Error("gateways were not told what others have spent", "organisation", organisation, "error", err)
			s.spent.mark(organisation)
		}
	}
}

// sendBudgets tells a gateway the budgets that are in force, with what others have spent. If that fails, it is told when it
// connects again.
func (s *Server) sendBudgets(ctx context.Context, h store.Host) {
	// The number precedes what is read, so that an order with a higher one was not read before a change that a lower one has.
	revision := s.nextRevision()
	all, err := s.Store.Budgets(ctx, h.Organisation)
	if err == nil && len(all) == 0 {
		return // there never was one
	}
	now := s.Now()
	month, _ := fleet.PeriodStart(fleet.MonthPeriod, now)
	var spent []store.Spending
	if err == nil {
		spent, err = s.Store.Spend(ctx, h.Organisation, month, now.Add(24*time.Hour))
	}
	o := fleet.TeamBudgets{Revision: revision, Budgets: []fleet.TeamBudget{}}
	for _, b := range all {
		if since, ok := fleet.PeriodStart(b.Period, now); ok && b.Ended.IsZero() {
			o.Budgets = append(o.Budgets, fleet.TeamBudget{ID: b.ID, Agent: b.Agent, Period: b.Period, InputTokens: b.InputTokens,
				OutputTokens: b.OutputTokens, MicroUSD: b.MicroUSD, Since: since, Elsewhere: sumSpent(spent, b.Agent, h.ID, since)})
		}
	}
	if err == nil {
		err = s.sendJSON(ctx, h, fleet.Budget, o)
	}
	if err != nil && ctx.Err() == nil {
		s.Log.Error("a gateway was not told the budgets; it is told when it connects again", "host", h.ID, "error", err)
	}
}

// nextRevision returns a number that grows, also over restarts: a time.
func (s *Server) nextRevision() uint64 {
	for {
		last := s.revision.Load()
		next := max(last+1, uint64(s.Now().UnixMicro()))
		if s.revision.CompareAndSwap(last, next) {
			return next
		}
	}
}

// sumSpent sums what an agent, or all of them, has spent since a day on other hosts than one.
func sumSpent(all []store.Spending, agent, without string, since time.Time) (sum fleet.SpentSum) {
	for _, p := range all {
		if p.Host != without && (agent == "" || p.Agent == agent) && !p.Day.Before(since) {
			sum.InputTokens += p.InputTokens
			sum.OutputTokens += p.OutputTokens
			sum.MicroUSD += p.MicroUSD
		}
	}
	return sum
}

type spendItem struct {
	store.Spending
	HostName string `json:"hostName"`
}

type spendList struct {
	Items []spendItem    `json:"items" nullable:"false"`
	Total fleet.SpentSum `json:"total"`
}

func (s *Server) listSpend(ctx context.Context, _ *Caller, in *struct {
	InOrganisation
	Days int `query:"days" minimum:"1" maximum:"366" default:"31" doc:"how many days, of which today is the last"`
}) (*output[spendList], error) {
	names, err := s.hostNames(ctx, in.Organisation)
	if err != nil {
		return nil, err
	}
	today := store.DayOf(s.Now())
	all, err := s.Store.Spend(ctx, in.Organisation, today.AddDate(0, 0, 1-in.Days), today.AddDate(0, 0, 2))
	out := answerWith(spendList{Items: []spendItem{}, Total: sumSpent(all, "", "", time.Time{})})
	for _, p := range all {
		out.Body.Items = append(out.Body.Items, spendItem{p, names[p.Host]})
	}
	return out, err
}

func (s *Server) listBudgets(ctx context.Context, _ *Caller, in *InOrganisation) (*output[list[store.Budget]], error) {
	all, err := s.Store.Budgets(ctx, in.Organisation)
	return answerWith(list[store.Budget]{Items: all}), err
}

// NewBudget is a budget to set.
type NewBudget struct {
	Agent        string `json:"agent,omitempty" maxLength:"100" doc:"of one agent; without it of all together"`
	Period       string `json:"period" enum:"day,month" doc:"UTC"`
	InputTokens  int64  `json:"inputTokens,omitempty" minimum:"1" maximum:"1000000000000"`
	OutputTokens int64  `json:"outputTokens,omitempty" minimum:"1" maximum:"1000000000000"`
	MicroUSD     int64  `json:"microUsd,omitempty" minimum:"1" maximum:"1000000000000" doc:"in millionths of a US dollar"`
}

func (s *Server) addBudget(ctx context.Context, c *Caller, in *inOrganisationWith[NewBudget]) (*output[store.Budget], error) {
	n := in.Body
	if cmp.Or(n.InputTokens, n.OutputTokens, n.MicroUSD) == 0 || strings.ContainsRune(n.Agent, 0) {
		return nil, bailey.Invalid.New("the budget has no limit", "set microUsd, inputTokens or outputTokens")
	}
	b, err := s.Store.AddBudget(ctx, in.Organisation, store.Budget{Agent: n.Agent, Period: n.Period, InputTokens: n.InputTokens,
		OutputTokens: n.OutputTokens, MicroUSD: n.MicroUSD, Person: c.Account.Email})
	if err == nil {
		err = s.toAll(ctx, in.Organisation, s.sendBudgets)
	}
	return answerWith(b), err
}

func (s *Server) endBudget(ctx context.Context, c *Caller, in *InOrganisationByID) (*nothing, error) {
	err := s.Store.EndBudget(ctx, in.Organisation, in.ID, c.Account.Email)
	if err == nil {
		err = s.toAll(ctx, in.Organisation, s.sendBudgets)
	}
	return nil, err
}
