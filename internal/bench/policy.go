package bench

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/policy"
)

// decideBurst is the number of consecutive decisions per turn of a row. The row flat-10000 makes only one.
const decideBurst = 20

// loadRounds is the number of times that ten thousand rules are loaded.
const loadRounds = 3

func (a *commands) benchPolicyVerb() *cobra.Command {
	var turns int
	cmd := a.measureVerb(&cobra.Command{
		Use: "policy", Short: "Compare decisions by ten rules, by ten thousand, and by Cedar alone",
		Long: `Time decisions, each including the construction of its request, in alternating rounds: by ten
rules (rules-10), by ten thousand over a thousand actions (rules-10000), by the same with one rule in twenty a
forbid for every action (rules-10000-forbid5pct), and by Cedar with all ten thousand rules at once
(flat-10000). Row cedar-10 is Cedar alone with the ten rules and a request made beforehand. Row load-10000
reads and checks ten thousand rules, as when a policy is applied; parse-10000 is Cedar's parser alone. Before
a row is timed, it must decide an allowed call and a denied call correctly. The ratios compare the best times.`,
	}, func(ctx context.Context, _ []string) ([]Row, error) {
		if turns < 1 {
			return nil, bailey.Invalid.New("--turns must be at least 1", "leave it out for 300")
		}
		return benchPolicy(ctx, turns)
	})
	cmd.Flags().IntVar(&turns, "turns", 300, "number of rounds of each row")
	return cmd
}

// policyTiming is a row during the measurement: the operation, its number per turn, and the time of each.
type policyTiming struct {
	name         string
	rules, burst int
	do           func()
	took         []time.Duration
}

func benchPolicy(ctx context.Context, turns int) ([]Row, error) {
	many := newPolicySample(10_000, 0)
	load := &policyTiming{name: "load-10000", rules: many.Rules}
	parse := &policyTiming{name: "parse-10000", rules: many.Rules}
	var lots *policy.Engine
	for range loadRounds {
		err := errors.Join(parse.timeRun(many.parseOnly),
			load.timeRun(func() (err error) { lots, err = policy.Load(many.Config); return err }), ctx.Err())
		if err != nil {
			return nil, err
		}
	}
	rows, err := newPolicyTimings(many, lots)
	if err != nil {
		return nil, err
	}
	for range turns {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, r := range rows {
			for range r.burst {
				start := time.Now()
				r.do()
				r.took = append(r.took, time.Since(start))
			}
		}
	}
	return newPolicyRows(append(rows, parse, load)), nil
}

// newPolicyTimings loads the other samples and checks that each way of deciding gives the correct decisions.
func newPolicyTimings(many policySample, lots *policy.Engine) (rows []*policyTiming, err error) {
	ten, forbids := newPolicySample(10, 0), newPolicySample(10_000, 5)
	few, err := policy.Load(ten.Config)
	if err != nil {
		return nil, err
	}
	closed, err := policy.Load(forbids.Config)
	if err != nil {
		return nil, err
	}
	bare, err := decideBare(few, ten.Allowed)
	if err != nil {
		return nil, err
	}
	if !bare() {
		return nil, bailey.Internal.New("row cedar-10 is decided wrongly", "")
	}
	rows = append(rows, &policyTiming{name: "cedar-10", rules: ten.Rules, burst: decideBurst, do: func() { bare() }})
	for _, w := range []struct {
		name   string
		sample policySample
		burst  int
		decide func(bailey.Request) bailey.Decision
	}{
		{"rules-10", ten, decideBurst, few.Decide}, {"rules-10000", many, decideBurst, lots.Decide},
		{"rules-10000-forbid5pct", forbids, decideBurst, closed.Decide}, {"flat-10000", many, 1, lots.Unsliced().Decide},
	} {
		if err := w.sample.checkDecisions(w.decide); err != nil {
			return nil, err
		}
		rows = append(rows, &policyTiming{name: w.name, rules: w.sample.Rules, burst: w.burst, do: func() { w.decide(w.sample.Allowed) }})
	}
	return rows, nil
}

func (j *policyTiming) timeRun(do func() error) error {
	start := time.Now()
	err := do()
	j.took = append(j.took, time.Since(start))
	return err
}

// newPolicyRows compares the best times, because a disturbance only makes a decision slower, and a long one is disturbed
// more often.
func newPolicyRows(timings []*policyTiming) (rows []Row) {
	best := map[string]float64{}
	for _, j := range timings {
		best[j.name] = toMicros(slices.Min(j.took))
	}
	for _, j := range timings {
		row := newRow(j.name, j.took)
		row.Facts = map[string]float64{"rules": float64(j.rules), "best_us": best[j.name]}
		compare := func(of string, limit float64) {
			rows = append(rows, row.comparedTo(of, best[j.name], best[of], limit))
		}
		switch j.name {
		case "parse-10000":
			rows = append(rows, row)
		case "load-10000":
			compare("parse-10000", 0)
			rows = append(rows, row.comparedTo("2 s", row.P50, toMicros(2*time.Second), 1))
		case "rules-10000":
			compare("rules-10", 2)
			compare("flat-10000", 1.0/200)
		default:
			compare("rules-10", 0)
			compare("flat-10000", 0)
		}
	}
	return rows
}
