package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"bailey"
)

// egressRounds is the number of large responses for each way. egressSize is the size of each in bytes.
const (
	egressRounds = 5
	egressSize   = 100_000_000
)

func (a *commands) benchEgressVerb() *cobra.Command {
	var n int
	cmd := a.measureVerb(&cobra.Command{
		Use: "egress", Short: "Compare HTTPS requests: direct, through the proxy, with a secret added",
		Long: fmt.Sprintf(`Send requests to a server on loopback, each over HTTPS and a new connection: directly (row
direct), through the proxy of a call, which copies what it cannot read (proxied), and through a proxy that
opens TLS and adds a secret to a header (injected). The rows alternate in one run; server, proxy and client
are in this process. The rows large are for %d MB in one response, the best of %d rounds. Row proxied must
take at most 1.3 times direct plus one millisecond, and reach 0.7 of its rate.`, egressSize/1_000_000,
			egressRounds),
		Example: "  bailey bench egress --json",
	}, func(ctx context.Context, _ []string) ([]Row, error) {
		if n < 1 {
			return nil, bailey.Invalid.New("-n must be at least 1", "leave it out for 300")
		}
		return benchEgress(ctx, n)
	})
	cmd.Flags().IntVarP(&n, "n", "n", 300, "number of small requests of each row")
	return cmd
}

func benchEgress(ctx context.Context, n int) ([]Row, error) {
	y, err := newEgressYard(ctx)
	if err != nil {
		return nil, err
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
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			times[w.name] = append(times[w.name], took)
		}
	}
	for range egressRounds {
		for _, w := range y.ways {
			took, err := timeRequest(ctx, w, y.url+"/large", egressSize)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			rates[w.name] = max(rates[w.name], egressSize/took.Seconds()/1e6)
		}
	}
	return newEgressRows(times, rates), nil
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

// newEgressRows returns the rows of the small requests, and then those of the large responses.
func newEgressRows(times map[string][]time.Duration, rates map[string]float64) []Row {
	names := []string{"direct", "proxied", "injected"}
	rows, p50 := timeRows(times, "direct", names...)
	rows = slices.Insert(rows, 2, rows[1].comparedTo("1.3 direct + 1 ms", p50["proxied"], 1.3*p50["direct"]+1000, 1))
	for _, name := range names {
		limit := map[string]float64{"proxied": 0.7}[name]
		row := Row{Name: name + "-large", N: egressRounds, Rate: rates[name]}
		rows = append(rows, row.comparedTo("direct-large", row.Rate, rates["direct"], limit))
	}
	return rows
}
