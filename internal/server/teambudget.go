package server

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	"bailey"
	"bailey/internal/enrol"
	"bailey/internal/fleet"
	"bailey/internal/gate"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/receipts"
	"bailey/internal/safefile"
)

// modelRequest is the capability whose calls spend tokens and money.
const modelRequest bailey.CapabilityID = "model.request"

// teamBudgets applies the budgets of the control plane, in front of those of the policy: it can only refuse. They are in a
// file, so that they hold after a restart without the control plane, until the gateway is no longer enrolled there.
type teamBudgets struct {
	gate.Budgets
	home localapi.Home
	now  func() time.Time
	// past returns what requests of earlier gateways have cost since a time, by day and agent.
	past func(ctx context.Context, since time.Time) (map[dayAgent]fleet.SpentSum, error)

	mu    sync.Mutex
	kept  keptBudgets
	spent map[dayAgent]fleet.SpentSum // by this gateway, and once recalled is set also by earlier ones
	// recalled is from when spent is complete; zero: it is not.
	recalled time.Time
}

// keptBudgets is the content of the file.
type keptBudgets struct {
	Host string `json:"host"` // the id at the control plane
	fleet.TeamBudgets
}

// dayAgent identifies a sum.
type dayAgent struct {
	day   int64 // its beginning, UTC, in seconds
	agent string
}

const (
	budgetsFile     = "team-budgets.json"
	maxBudgetsFile  = 1 << 20
	maxTeamBudgets  = 100
	recallSpentTime = 20 * time.Second
)

func openTeamBudgets(home localapi.Home, inner gate.Budgets) (*teamBudgets, error) {
	t := &teamBudgets{Budgets: inner, home: home, now: time.Now, spent: map[dayAgent]fleet.SpentSum{}}
	text, err := safefile.Read(home.Path(budgetsFile), maxBudgetsFile)
	if err == nil && text != nil {
		err = json.Unmarshal(text, &t.kept)
	}
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "cannot read the budgets of the control plane in "+home.Path(budgetsFile),
			"correct its permissions, or remove it: the control plane sends them again")
	}
	return t, nil
}

// follow replaces the budgets, unless those in force are as new.
func (t *teamBudgets) follow(host string, o fleet.TeamBudgets) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept.Host == host && o.Revision <= t.kept.Revision {
		return nil
	}
	kept := keptBudgets{host, o}
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(t.home.Path(budgetsFile)))
	if err != nil {
		return err
	}
	defer root.Close()
	t.kept = kept // they hold in any case: they only refuse
	return safefile.Replace(root, budgetsFile, append(text, '\n'), 0o600, func() error { return nil })
}

// inForce returns the budgets that apply to an agent.
func (t *teamBudgets) inForce(agent string) (list []fleet.TeamBudget, err error) {
	t.mu.Lock()
	kept := t.kept
	t.mu.Unlock()
	if len(kept.Budgets) == 0 {
		return nil, nil
	}
	e, err := enrol.DirOf(string(t.home)).Read()
	if err != nil {
		return nil, err
	}
	if e == nil || e.Host != kept.Host {
		return nil, nil
	}
	for _, b := range kept.Budgets {
		if b.Agent == "" || b.Agent == agent {
			list = append(list, b)
		}
	}
	return list, nil
}

// Take implements [gate.Budgets].
func (t *teamBudgets) Take(r bailey.Request) (gate.Allowance, error) {
	if r.Capability != modelRequest {
		return t.Budgets.Take(r)
	}
	list, err := t.inForce(r.Principal.Agent)
	for _, b := range list {
		if err == nil {
			err = t.checkBudget(b)
		}
	}
	if err != nil {
		return gate.Allowance{}, err
	}
	a, err := t.Budgets.Take(r)
	if err != nil {
		return a, err
	}
	inner, key := a.Settle, dayAgent{dayOf(t.now()), r.Principal.Agent}
	var once sync.Once
	a.Settle = func(u gate.Use) {
		if inner != nil {
			inner(u)
		}
		once.Do(func() { t.addSpent(key, u) })
	}
	return a, nil
}

func dayOf(at time.Time) int64 {
	start, _ := fleet.PeriodStart(fleet.DayPeriod, at)
	return start.Unix()
}

func (t *teamBudgets) addSpent(key dayAgent, u gate.Use) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spent[key] = addSums(t.spent[key], fleet.SpentSum{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, MicroUSD: u.MicroUSD})
}

func addSums(a, b fleet.SpentSum) fleet.SpentSum {
	return fleet.SpentSum{InputTokens: a.InputTokens + b.InputTokens, OutputTokens: a.OutputTokens + b.OutputTokens,
		MicroUSD: a.MicroUSD + b.MicroUSD}
}

// checkBudget returns an error if a budget is used up, by this gateway and the others together.
func (t *teamBudgets) checkBudget(b fleet.TeamBudget) error {
	since, ok := fleet.PeriodStart(b.Period, t.now())
	if !ok {
		return bailey.Unavailable.New("the control plane has set a budget of a period that this gateway does not know",
			"use a newer version of bailey here")
	}
	if err := t.recallSpent(since); err != nil {
		return err
	}
	var used fleet.SpentSum
	if b.Since.Equal(since) { // otherwise the control plane has said nothing about this period yet
		used = b.Elsewhere
	}
	t.mu.Lock()
	for key, sum := range t.spent {
		if key.day >= since.Unix() && (b.Agent == "" || key.agent == b.Agent) {
			used = addSums(used, sum)
		}
	}
	t.mu.Unlock()
	bound := ""
	switch {
	case b.MicroUSD > 0 && used.MicroUSD >= b.MicroUSD:
		bound = apitype.Dollars(b.MicroUSD) + " for models"
	case b.InputTokens > 0 && used.InputTokens >= b.InputTokens:
		bound = "the input tokens of models"
	case b.OutputTokens > 0 && used.OutputTokens >= b.OutputTokens:
		bound = "the output tokens of models"
	default:
		return nil
	}
	end := since.AddDate(0, 0, 1)
	if b.Period == fleet.MonthPeriod {
		end = since.AddDate(0, 1, 0)
	}
	err := bailey.Denied.Errorf("it is full again at "+end.Format(time.RFC3339)+"; an admin of the organisation can change it",
		"the team's budget %.40s for a %s is used up on all its gateways together: %s", printableWords(b.ID, 40), b.Period, bound)
	return &bailey.SpentError{Cause: err, Until: end}
}

// recallSpent counts what earlier gateways have spent since a time, once.
func (t *teamBudgets) recallSpent(since time.Time) error {
	t.mu.Lock()
	known := !t.recalled.IsZero() && !since.Before(t.recalled)
	t.mu.Unlock()
	if known || t.past == nil {
		return nil
	}
	month, _ := fleet.PeriodStart(fleet.MonthPeriod, t.now())
	ctx, cancel := context.WithTimeout(context.Background(), recallSpentTime)
	defer cancel()
	past, err := t.past(ctx, month)
	if err != nil {
		return bailey.Unavailable.Wrap(err, "what was spent before is not known, so the team's budget cannot be applied",
			"run bailey audit verify, then call again")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.recalled.IsZero() {
		for key, sum := range past {
			t.spent[key] = addSums(t.spent[key], sum)
		}
		t.recalled = month
	}
	return nil
}

// pastSpend reads from the ledger what requests to models have cost before this gateway started.
func (s *Server) pastSpend(ctx context.Context, since time.Time) (map[dayAgent]fleet.SpentSum, error) {
	sums := map[dayAgent]fleet.SpentSum{}
	f := receipts.Filter{Capability: modelRequest, Since: since, Until: s.since, Oldest: true, Limit: receipts.MaxLimit}
	for {
		page, err := s.index.Find(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Records {
			if f.After = r.Seq; r.Outcome == nil {
				continue
			}
			input, output := r.Outcome.Model.Tokens()
			key := dayAgent{dayOf(r.Intent.StartedAt), r.Intent.Agent}
			sums[key] = addSums(sums[key], fleet.SpentSum{InputTokens: input, OutputTokens: output, MicroUSD: r.Outcome.Model.Price()})
		}
		if !page.More {
			return sums, nil
		}
	}
}

// takeBudgets takes the budgets of the control plane.
func (s *Server) takeBudgets(_ context.Context, o fleet.TeamBudgets) (none localapi.None, err error) {
	e := s.enrolled.Load()
	switch {
	case e == nil:
		return none, bailey.Denied.New("this gateway is not enrolled", "bailey enroll URL")
	case o.Revision > uint64(s.teamBudgets.now().Add(24*time.Hour).UnixMicro()):
		return none, bailey.Invalid.New("the revision of the budgets is a time in the future",
			"set the clocks of the control plane and of the gateway")
	case len(o.Budgets) > maxTeamBudgets:
		return none, bailey.Invalid.New("there are more budgets than a gateway keeps", "end some of them")
	}
	for _, b := range o.Budgets {
		_, ok := fleet.PeriodStart(b.Period, time.Now())
		if !ok || len(b.ID) > 40 || len(b.Agent) > maxOrderAgent || min(b.InputTokens, b.OutputTokens, b.MicroUSD,
			b.Elsewhere.InputTokens, b.Elsewhere.OutputTokens, b.Elsewhere.MicroUSD) < 0 {
			return none, bailey.Invalid.New("a budget of the control plane is malformed", "use versions that understand each other")
		}
	}
	return none, s.teamBudgets.follow(e.Host, o)
}
