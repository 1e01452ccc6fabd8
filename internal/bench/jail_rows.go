package bench

import (
	"cmp"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"bailey/internal/terminal"
)

// jailRow is one line of bench jail. It has only the ratios that apply to it.
type jailRow struct {
	benchRow
	OfBwrap  *float64 `json:"of_bwrap,omitempty"`  // added to bare, divided by what bwrap adds
	PerBwrap *float64 `json:"per_bwrap,omitempty"` // p50 divided by that of bwrap: both are whole processes
	PerWarm  *float64 `json:"per_warm,omitempty"`  // p50 divided by that of warm
	PerCold  *float64 `json:"per_cold,omitempty"`  // p50 divided by that of cold-cage
	AtMost   *float64 `json:"at_most,omitempty"`   // limit of the last ratio that is set
}

// jailRows is the result of bench jail. Command is the program that was run, and Absent lists the ways without a row.
type jailRows struct {
	Command []string    `json:"command,omitempty"`
	Rows    []jailRow   `json:"rows"`
	Absent  []absentRow `json:"absent,omitempty"`
}

// absentRow is a way that could not be measured on this machine.
type absentRow struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// newJailRows summarizes the times, in the order of the ways.
func newJailRows(ways []way, times map[string][]time.Duration) []jailRow {
	p50 := map[string]float64{}
	var rows []jailRow
	for _, w := range ways {
		all := slices.Sorted(slices.Values(times[w.name]))
		if len(all) == 0 {
			continue
		}
		p50[w.name] = toMicros(all[len(all)/2])
		rows = append(rows, jailRow{benchRow: benchRow{Name: w.name, N: len(all), P50: p50[w.name], P99: toMicros(all[len(all)*99/100])}})
	}
	for i := range rows {
		rows[i].setRatios(p50)
	}
	return rows
}

// setRatios sets the ratios to other rows, if those rows exist.
func (r *jailRow) setRatios(p50 map[string]float64) {
	bare, bwrap := p50["bare"], cmp.Or(p50["bwrap"], p50["bwrap-dev"])
	r.PerBare = ratioOf(r.P50, bare)
	if r.Name != "bare" {
		r.OfBwrap = ratioOf(r.P50-bare, bwrap-bare)
	}
	switch r.Name {
	case "ondemand":
		r.AtMost = new(0.14)
	case "warm":
		r.AtMost = new(0.10)
	case "parked":
		r.AtMost = new(0.05)
	case "warm-2workers":
		r.PerWarm, r.AtMost = ratioOf(r.P50, p50["warm"]), new(1.10)
	case "wall":
		r.PerCold, r.AtMost = ratioOf(r.P50, p50["cold-cage"]), new(2.0)
	case "cold", "cold-jail":
		r.PerBwrap, r.AtMost = ratioOf(r.P50, bwrap), new(1.0)
	}
}

// ratioOf returns a/b, or nil if there is nothing to compare with.
func ratioOf(a, b float64) *float64 {
	if b <= 0 {
		return nil
	}
	return new(a / b)
}

func (a *commands) printJail(rows jailRows) error {
	if a.JSON {
		return a.Print(rows)
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tn\tp50 µs\tp99 µs\t× bare\tof bwrap\trequired\t")
	for _, r := range rows.Rows {
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%.0f\t%.2f\t%s\t%s\t\n", r.Name, r.N, r.P50, r.P99, *r.PerBare,
			threeDecimals(r.OfBwrap), r.requirementText())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range rows.Absent {
		fmt.Fprintf(a.Stderr, "bailey: no row %s: %s\n", r.Name, terminal.Shown(r.Why))
	}
	return nil
}

func threeDecimals(f *float64) string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf("%.3f", *f)
}

func (r *jailRow) requirementText() string {
	switch {
	case r.AtMost == nil:
		return ""
	case r.PerWarm != nil:
		return fmt.Sprintf("%.2f × warm, ≤ %.2f", *r.PerWarm, *r.AtMost)
	case r.PerCold != nil:
		return fmt.Sprintf("%.2f × cold-cage, ≤ %.2f", *r.PerCold, *r.AtMost)
	case r.PerBwrap != nil:
		return fmt.Sprintf("%.2f × bwrap, ≤ %.2f", *r.PerBwrap, *r.AtMost)
	}
	return fmt.Sprintf("≤ %.2f", *r.AtMost)
}
