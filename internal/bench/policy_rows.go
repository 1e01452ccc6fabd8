package bench

import (
	"fmt"
	"slices"
	"text/tabwriter"
	"time"
)

// policyRow is one line of bench policy. It has only the ratios that apply to it. They compare the best times, because
// a disturbance only makes a decision slower, and a long one is disturbed more often.
type policyRow struct {
	Name     string      `json:"name"`
	Rules    int         `json:"rules"`
	N        int         `json:"n"`
	Best     int64       `json:"best_ns"`
	P50      int64       `json:"p50_ns"`
	P99      int64       `json:"p99_ns"`
	PerTen   *float64    `json:"per_ten,omitempty"`   // best divided by that of rules-10
	PerFlat  *float64    `json:"per_flat,omitempty"`  // best divided by that of flat-10000
	PerParse *float64    `json:"per_parse,omitempty"` // best divided by that of parse-10000
	AtMost   *policyMost `json:"at_most,omitempty"`
}

// policyMost holds the limits of a row.
type policyMost struct {
	P50     int64   `json:"p50_ns,omitempty"`
	PerTen  float64 `json:"per_ten,omitempty"`
	PerFlat float64 `json:"per_flat,omitempty"`
}

type policyRows struct {
	Rows []policyRow `json:"rows"`
}

func newPolicyRows(rows []*policyTiming) (out policyRows) {
	best := map[string]int64{}
	for _, j := range rows {
		all := slices.Sorted(slices.Values(j.took))
		r := policyRow{Name: j.name, Rules: j.rules, N: len(all), Best: all[0].Nanoseconds(),
			P50: all[len(all)/2].Nanoseconds(), P99: all[len(all)*99/100].Nanoseconds()}
		best[r.Name] = r.Best
		out.Rows = append(out.Rows, r)
	}
	for i := range out.Rows {
		out.Rows[i].setRatios(best)
	}
	return out
}

// setRatios sets the ratios to other rows.
func (r *policyRow) setRatios(best map[string]int64) {
	to := func(name string) *float64 { return ratioOf(float64(r.Best), float64(best[name])) }
	switch r.Name {
	case "parse-10000":
		return
	case "load-10000":
		r.PerParse, r.AtMost = to("parse-10000"), &policyMost{P50: (2 * time.Second).Nanoseconds()}
		return
	case "rules-10000":
		r.AtMost = &policyMost{PerTen: 2, PerFlat: 1.0 / 200}
	}
	r.PerTen, r.PerFlat = to("rules-10"), to("flat-10000")
}

func (a *commands) printPolicyRows(rows policyRows) error {
	if a.JSON {
		return a.Print(rows)
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tn\tbest µs\tp50 µs\tp99 µs\t× rules-10\t× flat-10000\trequired\t")
	for _, r := range rows.Rows {
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\t%.2f\t%s\t%s\t%s\t\n", r.Name, r.N, float64(r.Best)/1e3, float64(r.P50)/1e3,
			float64(r.P99)/1e3, twoDecimals(r.PerTen), fiveDecimals(r.PerFlat), r.requirementText())
	}
	return w.Flush()
}

func twoDecimals(f *float64) string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf("%.2f", *f)
}

func fiveDecimals(f *float64) string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf("%.5f", *f)
}

func (r *policyRow) requirementText() string {
	switch {
	case r.AtMost == nil:
		return ""
	case r.PerParse != nil:
		return fmt.Sprintf("%.2f × parse-10000, ≤ %.0f µs", *r.PerParse, float64(r.AtMost.P50)/1e3)
	}
	return fmt.Sprintf("≤ %.2f × rules-10, ≤ %.5f × flat-10000", r.AtMost.PerTen, r.AtMost.PerFlat)
}
