package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bailey/internal/cli"
	"bailey/internal/terminal"
)

// Row is one line of a benchmark. Fields that do not apply are omitted. A row that is compared with several others stands
// there once for each.
type Row struct {
	Name     string             `json:"name"`
	N        int                `json:"n"` // 0: it could not be measured, as Note says
	P50      float64            `json:"p50_us,omitempty"`
	P99      float64            `json:"p99_us,omitempty"`
	PerSec   float64            `json:"per_s,omitempty"`
	Rate     float64            `json:"mb_per_s,omitempty"` // 10^6 bytes
	Ratio    float64            `json:"ratio,omitempty"`    // its time or rate, divided by that of Of
	Of       string             `json:"of,omitempty"`       // a row, or an expression of rows
	Required float64            `json:"required,omitempty"` // limit of Ratio: at most for times, at least for rates
	Facts    map[string]float64 `json:"facts,omitempty"`
	Note     string             `json:"note,omitempty"`
}

// newRow summarizes the times of one way.
func newRow(name string, times []time.Duration) Row {
	all := slices.Sorted(slices.Values(times))
	return Row{Name: name, N: len(all), P50: toMicros(all[len(all)/2]), P99: toMicros(all[len(all)*99/100])}
}

// timeRows returns one row for each name that has times, in the given order, and the medians by name. If of is not empty,
// each row is compared with the row of that name.
func timeRows(times map[string][]time.Duration, of string, names ...string) (rows []Row, p50 map[string]float64) {
	p50 = map[string]float64{}
	for _, name := range names {
		if len(times[name]) > 0 {
			rows = append(rows, newRow(name, times[name]))
			p50[name] = rows[len(rows)-1].P50
		}
	}
	for i, r := range rows {
		rows[i] = r.comparedTo(of, r.P50, p50[of], 0)
	}
	return rows, p50
}

// comparedTo returns the row with the ratio of value to that of another row, and the limit of the ratio, 0 without one. If
// there is no other value, the row has no ratio.
func (r Row) comparedTo(of string, value, other, limit float64) Row {
	r.Ratio, r.Of, r.Required = 0, "", limit
	if other > 0 {
		r.Ratio, r.Of = value/other, of
	}
	return r
}

func toMicros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// measureVerb makes cmd print the rows that measure returns.
func (a *commands) measureVerb(cmd *cobra.Command,
	measure func(ctx context.Context, args []string) ([]Row, error)) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		rows, err := measure(cmd.Context(), args)
		if err != nil {
			return err
		}
		return a.printRows(rows)
	}
	return cmd
}

func (a *commands) printRows(rows []Row) error {
	return cli.PrintAnswer(a.App, struct {
		Rows []Row `json:"rows"`
	}{rows}, func(w io.Writer, _ struct {
		Rows []Row `json:"rows"`
	}) {
		writeTable(w, rows)
		for _, r := range rows {
			if r.N == 0 {
				fmt.Fprintf(a.Stderr, "bailey: no row %s: %s\n", r.Name, terminal.Shown(r.Note))
			}
		}
	})
}

// columns are those of the table. A column without a value in any row is left out.
var columns = []struct {
	title string
	cell  func(Row) string
}{
	{"", func(r Row) string { return r.Name }},
	{"n", func(r Row) string { return fmt.Sprint(r.N) }},
	{"p50 µs", func(r Row) string { return formatNumber(r.P50) }},
	{"p99 µs", func(r Row) string { return formatNumber(r.P99) }},
	{"per second", func(r Row) string { return formatNumber(r.PerSec) }},
	{"MB/s", func(r Row) string { return formatNumber(r.Rate) }},
	{"ratio", func(r Row) string { return formatRatio(r.Ratio) }},
	{"of", func(r Row) string { return r.Of }},
	{"required", Row.limitText},
	{"facts", Row.factsText},
}

func writeTable(out io.Writer, rows []Row) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.N == 0 })
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	lines := make([]strings.Builder, len(rows)+1)
	for _, c := range columns {
		if !slices.ContainsFunc(rows, func(r Row) bool { return c.cell(r) != "" }) {
			continue
		}
		lines[0].WriteString(c.title + "\t")
		for i, r := range rows {
			lines[i+1].WriteString(c.cell(r) + "\t")
		}
	}
	for i := range lines {
		fmt.Fprintln(w, lines[i].String())
	}
}

func formatNumber(f float64) string {
	switch {
	case f == 0:
		return ""
	case f < 100:
		return fmt.Sprintf("%.2f", f)
	}
	return fmt.Sprintf("%.0f", f)
}

func formatRatio(f float64) string {
	switch {
	case f == 0:
		return ""
	case f < 0.01:
		return fmt.Sprintf("%.5f", f)
	}
	return fmt.Sprintf("%.3f", f)
}

func (r Row) limitText() string {
	switch {
	case r.Required == 0:
		return ""
	case r.PerSec > 0 || r.Rate > 0:
		return fmt.Sprintf("≥ %g", r.Required)
	}
	return fmt.Sprintf("≤ %g", r.Required)
}

func (r Row) factsText() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(r.Facts)) {
		words = append(words, name+" "+cmp.Or(formatNumber(r.Facts[name]), "0"))
	}
	return strings.Join(words, ", ")
}
