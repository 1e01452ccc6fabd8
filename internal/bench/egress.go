package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bailey"
)

// egressRow is the result for one way to the same server: a small request on a separate connection, and a large
// response.
type egressRow struct {
	benchRow
	Rate    float64  `json:"mb_per_s"`           // wall time, 10^6 bytes per second, best round
	AtMost  *float64 `json:"at_most,omitempty"`  // limit of per_bare, plus one millisecond
	AtLeast *float64 `json:"at_least,omitempty"` // limit of of_bare
	OfBare  *float64 `json:"of_bare,omitempty"`  // rate divided by that of direct
}

type egressRows struct {
	Bytes int64       `json:"bytes"`
	Rows  []egressRow `json:"rows"`
}

// egressRounds is the number of large responses for each way. egressSize is the size of each in bytes.
const (
	egressRounds = 5
	egressSize   = 100_000_000
)

func (a *commands) benchEgressVerb() *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use: "egress", Short: "A request over HTTPS directly, through the proxy, and with a secret put in",
		Args: cobra.NoArgs,
		Long: fmt.Sprintf(`Ask a server on loopback, over HTTPS and on a connection of its own each time: directly (row direct), through the
proxy of a call, which copies what it cannot read (proxied), and through one that opens TLS and puts a secret into a header (injected).
In turns of one run; server, proxy and client are in this process. mb_per_s is for %d MB in one answer, the best of %d rounds.
Required of proxied: at most 1.3 times direct and a millisecond, and 0.7 of its rate.`, egressSize/1_000_000,
			egressRounds),
		Example: "  bailey bench egress --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 1 {
				return bailey.Invalid.New("-n wants at least one request", "leave it out for 300")
			}
			rows, err := benchEgress(cmd.Context(), n)
			if err != nil {
				return err
			}
			return a.printEgress(rows)
		},
	}
	cmd.Flags().IntVarP(&n, "n", "n", 300, "how many small requests by each way")
	return cmd
}

func benchEgress(ctx context.Context, n int) (egressRows, error) {
	y, err := newEgressYard(ctx)
	if err != nil {
		return egressRows{}, err
	}
	defer y.close()
	times, rates := map[string][]time.Duration{}, map[string]float64{}
	const warm = 3
	for i := range n + warm {
		if i == warm {
			clear(times)
		}
		for _, w := range y.ways {
			took, err := timeRequest(ctx, w, y.url+"/small", 1)
			if err != nil {
				return egressRows{}, fmt.Errorf("%s: %w", w.name, err)
			}
			times[w.name] = append(times[w.name], took)
		}
	}
	for range egressRounds {
		for _, w := range y.ways {
			took, err := timeRequest(ctx, w, y.url+"/large", egressSize)
			if err != nil {
				return egressRows{}, fmt.Errorf("%s: %w", w.name, err)
			}
			rates[w.name] = max(rates[w.name], egressSize/took.Seconds()/1e6)
		}
	}
	return newEgressRows(y.ways, times, rates), nil
}

// timeRequest times one request from its start to the last byte of the response.
func timeRequest(ctx context.Context, w egressWay, url string, want int64) (time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", w.token)
	start := time.Now()
	res, err := w.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err == nil && (n != want || res.StatusCode != http.StatusOK) {
		err = fmt.Errorf("%s with %d bytes of %d", res.Status, n, want)
	}
	return time.Since(start), err
}

func newEgressRows(ways []egressWay, times map[string][]time.Duration, rates map[string]float64) egressRows {
	out := egressRows{Bytes: egressSize}
	var direct *egressRow
	for _, w := range ways {
		all := slices.Sorted(slices.Values(times[w.name]))
		row := egressRow{benchRow: benchRow{Name: w.name, N: len(all), P50: toMicros(all[len(all)/2]),
			P99: toMicros(all[len(all)*99/100])}, Rate: rates[w.name]}
		direct = cmp.Or(direct, &row)
		row.PerBare, row.OfBare = ratioOf(row.P50, direct.P50), ratioOf(row.Rate, direct.Rate)
		if w.name == "proxied" {
			row.AtMost, row.AtLeast = new(1.3), new(0.7)
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

func (a *commands) printEgress(rows egressRows) error {
	if a.JSON {
		return a.Print(rows)
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tn\tp50 µs\tp99 µs\t× direct\tMB/s\tof direct\trequired\t")
	for _, r := range rows.Rows {
		required := ""
		if r.AtMost != nil {
			required = fmt.Sprintf("≤ %.1f × and 1 ms, ≥ %.1f", *r.AtMost, *r.AtLeast)
		}
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%.0f\t%.2f\t%.0f\t%.2f\t%s\t\n", r.Name, r.N, r.P50, r.P99, *r.PerBare, r.Rate,
			*r.OfBare, required)
	}
	return w.Flush()
}
