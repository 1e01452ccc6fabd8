package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/ledger"
)

const (
	benchRounds = 5   // per row, in turn with the others
	benchLine   = 512 // bytes of a raw line, and of an entry
	benchFrame  = 179 // bytes of these around the text of a note
)

func (a *commands) benchLedgerVerb() *cobra.Command {
	var callers []int
	var window time.Duration
	cmd := a.measureVerb(&cobra.Command{
		Use: "ledger", Short: "Compare the ledger with plain appends to the same disk",
		Long: `Count the durable writes per second, by the given numbers of concurrent callers: raw, 512 bytes
appended and synced with fdatasync; entry, an entry of the ledger of 512 bytes; receipt, an intent and its
outcome. All three group their callers in the same way. The rows alternate in one run, on the disk of TMPDIR.`,
	}, func(ctx context.Context, _ []string) ([]Row, error) { return benchLedger(ctx, callers, window) })
	cmd.Flags().IntSliceVar(&callers, "callers", []int{1, 8, 64, 256}, "numbers of concurrent callers")
	cmd.Flags().DurationVar(&window, "window", 100*time.Millisecond, "duration of each of the 20 rounds of a row")
	return cmd
}

func benchLedger(ctx context.Context, callers []int, window time.Duration) (rows []Row, err error) {
	dir, err := os.MkdirTemp("", "bailey-bench")
	if err != nil {
		return rows, err
	}
	defer os.RemoveAll(dir)
	log, err := ledger.New(ledger.Config{Dir: filepath.Join(dir, "ledger"), Host: "bench"})
	if err != nil {
		return rows, err
	}
	defer log.Close()
	raw, err := newRawFile(dir)
	if err != nil {
		return rows, err
	}
	defer raw.Close()
	line := []byte(strings.Repeat("x", benchLine-1) + "\n")
	note := benchNote{strings.Repeat("x", benchLine-benchFrame)}
	ways := []struct {
		name string
		do   func() error
	}{
		{"raw", func() error { return raw.Append(line) }},
		{"entry", func() error { return log.Note(ctx, "bench", note) }},
		{"receipt", func() error { return benchReceipt(ctx, log) }},
	}
	for _, n := range callers {
		if n < 1 || n > 10_000 {
			return rows, bailey.Invalid.Errorf("use a number from 1 to 10000", "%d callers", n)
		}
		counts, took := make([]int, len(ways)), make([]time.Duration, len(ways))
		for range benchRounds {
			for i, way := range ways {
				count, t, err := runConcurrently(ctx, window, n, way.do)
				if err != nil {
					return rows, err
				}
				counts[i], took[i] = counts[i]+count, took[i]+t
			}
		}
		base := float64(counts[0]) / took[0].Seconds()
		for i, way := range ways {
			row := Row{Name: fmt.Sprintf("%s-%d", way.name, n), N: counts[i],
				PerSec: float64(counts[i]) / took[i].Seconds()}
			rows = append(rows, row.comparedTo(fmt.Sprintf("raw-%d", n), row.PerSec, base, 0))
		}
	}
	return rows, nil
}

// benchNote is the data of an entry of benchLine bytes.
type benchNote struct {
	Text string `json:"text"`
}

// runConcurrently runs do in n concurrent callers for the length of window. It returns the number of runs and the time that
// passed.
func runConcurrently(ctx context.Context, window time.Duration, n int, do func() error) (int, time.Duration, error) {
	var count atomic.Int64
	var failed atomic.Pointer[error]
	var callers sync.WaitGroup
	start := time.Now()
	for range n {
		callers.Go(func() {
			for time.Since(start) < window && ctx.Err() == nil && failed.Load() == nil {
				if err := do(); err != nil {
					failed.Store(&err)
					return
				}
				count.Add(1)
			}
		})
	}
	callers.Wait()
	if err := failed.Load(); err != nil {
		return 0, 0, *err
	}
	return int(count.Load()), time.Since(start), ctx.Err()
}

// benchReceipt writes the entries of a call that reads a repository.
func benchReceipt(ctx context.Context, log *ledger.Log) error {
	const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	seal, err := log.Open(ctx, bailey.Intent{
		Receipt: bailey.NewReceiptID(), Capability: "git.status", Input: []byte(`{"path":"."}`), Agent: "local",
		Person: "bench",
		Host:   "bench", Session: "s-0123456789abcdef", Door: "bench", Dir: "/home/bench/work",
		StartedAt: time.Now().UTC(),
	})
	if err != nil {
		return err
	}
	return seal(bailey.Outcome{
		Status: bailey.OK, Decision: "allow", Rules: []bailey.Rule{{ID: "starter-reads", Source: "starter.cedar"}},
		Executed:       new(true),
		ManifestDigest: digest, PolicyDigest: digest, Argv: []string{"git", "status", "--porcelain=v2"},
		EnvNames: []string{"PATH", "HOME", "LANG"},
		Cwd:      "/home/bench/work", Paths: []string{"/home/bench/work"}, ExitCode: new(0), StdoutBytes: 100,
	})
}
