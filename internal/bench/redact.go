package bench

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/redact"
)

// maxBench is the maximum size in bytes of the measured file. The whole file is in memory, so that the disk is not
// measured.
const maxBench = 1 << 30

// redactRounds is the number of rounds of each row, in turn. The best counts, because a disturbance only makes a round
// slower.
const redactRounds = 5

type redactRows struct {
	Rows  []rateRow `json:"rows"`
	Ratio float64   `json:"ratio"` // redact's rate over prefilter's
}

func (a *commands) benchRedactVerb() *cobra.Command {
	return &cobra.Command{
		Use: "redact FILE", Short: "How fast a file is redacted, beside a prefilter alone",
		Long: fmt.Sprintf(`Redact a file of up to 1 GiB as a stream, and run over it an automaton that looks for the same keywords and
does nothing else (row prefilter: what most scanners do first). In turn, %d rounds in one run; the best of each
counts. The rate is in millions of bytes for each second of CPU time that this process has used. Nothing goes through the
gateway, nothing is printed of the file.`, redactRounds),
		Example: "  bailey bench redact app.log --json",
		Args:    cli.OneArg("a file, as in: bailey bench redact app.log"),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := readWhole(args[0], maxBench)
			if err != nil {
				return err
			}
			rows, err := benchRedact(text)
			if err != nil {
				return err
			}
			return a.printRedactRows(rows)
		},
	}
}

func benchRedact(text []byte) (redactRows, error) {
	rules, err := redact.Compile(redact.Config{})
	if err != nil {
		return redactRows{}, err
	}
	var best []rateRow
	for range redactRounds {
		round := measureRedact(rules, text, cpuTime)
		if best == nil {
			best = round
		}
		for i, row := range round {
			best[i].Rate = max(best[i].Rate, row.Rate)
		}
	}
	rows := redactRows{Rows: best}
	if best[1].Rate > 0 {
		rows.Ratio = best[0].Rate / best[1].Rate
	}
	return rows, nil
}

// readWhole reads a file that must have at least one byte and at most the given number.
func readWhole(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, bailey.Invalid.Wrapf(err, "name a file that you may read", "%s cannot be read", name)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > most {
		return nil, tooLong(name, most)
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, bailey.Invalid.Wrapf(err, "name a file", "%s cannot be read", name)
	case int64(len(text)) > most:
		return nil, tooLong(name, most)
	case len(text) == 0:
		return nil, bailey.Invalid.New(name+" is empty: there is nothing to measure",
			"name a log of some megabytes")
	}
	return text, nil
}

func tooLong(name string, most int64) error {
	return bailey.Invalid.Errorf("measure a part of it: head -c 100M", "%s is over the %d bytes allowed", name, most)
}

func (a *commands) printRedactRows(rows redactRows) error {
	if a.JSON {
		return a.Print(rows)
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tMB/s of CPU\tfound\t× prefilter\t")
	for _, r := range rows.Rows {
		fmt.Fprintf(w, "%s\t%.1f\t%d\t%.2f\t\n", r.Name, r.Rate, r.N, r.Rate/rows.Rows[1].Rate)
	}
	return w.Flush()
}
