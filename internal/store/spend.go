package store

import (
	"context"
	"database/sql"
	"time"

	"bailey"
)

// A Spending is what requests to models have cost.
type Spending struct {
	Day          time.Time `json:"day"` // its beginning, UTC
	Host         string    `json:"host"`
	Agent        string    `json:"agent"`
	Person       string    `json:"person"`
	Calls        int64     `json:"calls"`
	InputTokens  int64     `json:"inputTokens"`
	OutputTokens int64     `json:"outputTokens"`
	MicroUSD     int64     `json:"microUsd" doc:"in millionths of a US dollar"`
}

// maxSpent bounds what one receipt may have cost: a host says what it likes, and sums must not overflow.
const maxSpent = 1e12

func boundSpent(n int64) int64 { return min(max(n, 0), maxSpent) }

// AddSpend adds the cost of a receipt of a host whose outcome is about to be stored. The agent, the person and the day are
// those of its intent. If it has an outcome, or no intent, nothing is added.
func (s *Store) AddSpend(ctx context.Context, tx *Tx, organisation, host, receipt string, p Spending) error {
	type intent struct {
		agent, person string
		started       int64
	}
	found, err := queryRows(ctx, s, tx.tx, func(scan func(...any) error) (i intent, err error) {
		err = scan(&i.agent, &i.person, &i.started)
		return i, err
	}, "SELECT agent, person, started FROM receipts WHERE host = ? AND receipt = ? AND outcome = 0", host, receipt)
	if err != nil || len(found) == 0 {
		return err
	}
	day := DayOf(fromMicros(found[0].started))
	_, err = s.execChange(ctx, tx.tx, "INSERT INTO spend (organisation, host, day, agent, person, calls, input_tokens, "+
		"output_tokens, micro_usd) VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?) ON CONFLICT (host, day, agent, person) DO UPDATE SET "+
		"calls = spend.calls + 1, input_tokens = spend.input_tokens + excluded.input_tokens, "+
		"output_tokens = spend.output_tokens + excluded.output_tokens, micro_usd = spend.micro_usd + excluded.micro_usd",
		organisation, host, toMicros(day), found[0].agent, found[0].person, boundSpent(p.InputTokens), boundSpent(p.OutputTokens),
		boundSpent(p.MicroUSD))
	return err
}

// DayOf returns the beginning of a day, UTC.
func DayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

const spendColumns = "day, host, agent, person, calls, input_tokens, output_tokens, micro_usd"

func scanSpending(scan func(...any) error) (p Spending, err error) {
	var day int64
	err = scan(&day, &p.Host, &p.Agent, &p.Person, &p.Calls, &p.InputTokens, &p.OutputTokens, &p.MicroUSD)
	p.Day = fromMicros(day)
	return p, err
}

// Spend lists what an organisation has spent on the days from since until before another one, the newest first.
func (s *Store) Spend(ctx context.Context, organisation string, since, until time.Time) ([]Spending, error) {
	return queryRows(ctx, s, s.db, scanSpending, "SELECT "+spendColumns+" FROM spend WHERE organisation = ? AND day >= ? AND "+
		"day < ? ORDER BY day DESC, micro_usd DESC, host, agent, person LIMIT 20000", organisation, toMicros(since), toMicros(until))
}

// A Budget bounds what requests to models cost in a period, on all gateways of an organisation together.
type Budget struct {
	ID           string    `json:"id"`
	Agent        string    `json:"agent,omitempty" doc:"of one agent; without it of all together"`
	Period       string    `json:"period" enum:"day,month" doc:"UTC"`
	InputTokens  int64     `json:"inputTokens,omitempty" doc:"0: no limit"`
	OutputTokens int64     `json:"outputTokens,omitempty"`
	MicroUSD     int64     `json:"microUsd,omitempty" doc:"in millionths of a US dollar"`
	Person       string    `json:"person" doc:"who set it"`
	Created      time.Time `json:"created"`
	Ended        time.Time `json:"ended,omitzero"`
	EndedBy      string    `json:"endedBy,omitempty"`
}

const budgetColumns = "id, agent, period, input_tokens, output_tokens, micro_usd, person, created, ended, ended_by"

func scanBudget(scan func(...any) error) (b Budget, err error) {
	var created, ended int64
	err = scan(&b.ID, &b.Agent, &b.Period, &b.InputTokens, &b.OutputTokens, &b.MicroUSD, &b.Person, &created, &ended, &b.EndedBy)
	b.Created, b.Ended = fromMicros(created), fromMicros(ended)
	return b, err
}

// Budgets lists the budgets of an organisation, also those that have ended, the newest first.
func (s *Store) Budgets(ctx context.Context, organisation string) ([]Budget, error) {
	return queryRows(ctx, s, s.db, scanBudget,
		"SELECT "+budgetColumns+" FROM budgets WHERE organisation = ? ORDER BY created DESC, id LIMIT 1000", organisation)
}

// mostBudgets limits the budgets of an organisation that are in force.
const mostBudgets = 100

// AddBudget sets a budget. The error is Conflict if there are mostBudgets.
func (s *Store) AddBudget(ctx context.Context, organisation string, b Budget) (Budget, error) {
	b.ID, b.Created = newID("b-"), s.now()
	err := s.inTransaction(ctx, func(tx *sql.Tx) error {
		n, err := oneRow(ctx, s, tx, "budget", func(scan func(...any) error) (n int, err error) {
			err = scan(&n)
			return n, err
		},
			"SELECT count(*) FROM budgets WHERE organisation = ? AND ended = 0", organisation)
		if err == nil && n >= mostBudgets {
			err = bailey.Conflict.Errorf("end one of them", "the organisation has %d budgets, the maximum", mostBudgets)
		}
		if err != nil {
			return err
		}
		_, err = s.execChange(ctx, tx, "INSERT INTO budgets (organisation, "+budgetColumns+
			") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, '')", organisation, b.ID, b.Agent, b.Period, b.InputTokens, b.OutputTokens,
			b.MicroUSD, b.Person, toMicros(b.Created))
		return err
	})
	return b, err
}

// EndBudget ends a budget.
func (s *Store) EndBudget(ctx context.Context, organisation, id, person string) error {
	return s.changeOne(ctx, s.db, "budget", "UPDATE budgets SET ended = ?, ended_by = ? WHERE organisation = ? AND id = ? AND ended = 0",
		toMicros(s.now()), person, organisation, id)
}
