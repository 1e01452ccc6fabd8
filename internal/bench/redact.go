package bench

import (
	"context"
	"fmt"
	"io"
	"os"

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

func (a *commands) benchRedactVerb() *cobra.Command {
	return a.measureVerb(&cobra.Command{
		Use: "redact FILE", Short: "Compare the redaction of a file with a prefilter alone",
		Long: fmt.Sprintf(`Redact a file of up to 1 GiB as a stream, and compare this with an automaton that only searches
for the same keywords (row prefilter: the first step of most scanners). The rows alternate, %d rounds in one
run; the best round of each is used. The rate is in millions of bytes per second of CPU time of this process.
The file does not go through the gateway, and no part of it is printed.`, redactRounds),
		Example: "  bailey bench redact app.log --json",
		Args:    cli.OneArg("a file, for example: bailey bench redact app.log"),
	}, func(_ context.Context, args []string) ([]Row, error) {
		text, err := readWhole(args[0], maxBench)
		if err != nil {
			return nil, err
		}
		return benchRedact(text)
	})
}

func benchRedact(text []byte) (rows []Row, err error) {
	rules, err := redact.Compile(redact.Config{})
	if err != nil {
		return nil, err
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
	for _, b := range best {
		row := Row{Name: b.Name, N: redactRounds, Rate: b.Rate, Facts: map[string]float64{"found": float64(b.N)}}
		rows = append(rows, row.comparedTo("prefilter", b.Rate, best[1].Rate, 0))
	}
	return rows, nil
}

// readWhole reads a file that must have at least one byte and at most the given number.
func readWhole(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, bailey.Invalid.Wrapf(err, "name a file that you can read", "%s cannot be read", name)
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
