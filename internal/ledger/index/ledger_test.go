package index

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger"
	"bailey/internal/receipts"
)

// testLog is a log with its directory.
type testLog struct {
	*ledger.Log
	dir string
}

// open opens a ledger and closes it when the test ends.
func open(t testing.TB, c ledger.Config) *testLog {
	t.Helper()
	l, err := ledger.New(c)
	if err != nil {
		t.Fatalf("%v (%s)", err, bailey.HintOf(err))
	}
	t.Cleanup(func() { l.Close() })
	return &testLog{l, c.Dir}
}

// indexed opens an index beside the ledger and closes it when the test ends. Its log goes to said.
func indexed(t testing.TB, l *testLog, said *said) *Index {
	t.Helper()
	home := filepath.Dir(l.dir)
	do(t, os.Chmod(home, 0o700))
	x := New(Config{Path: filepath.Join(home, "index.db"), Ledger: l.Log, Log: logger(said)})
	t.Cleanup(func() { x.Close() })
	return x
}

// said is an operator's log that several goroutines can use.
type said struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.buf.Write(b) }
func (s *said) String() string              { s.mu.Lock(); defer s.mu.Unlock(); return s.buf.String() }

func logger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func place(t testing.TB) string { return filepath.Join(t.TempDir(), "ledger") }

func first(dir string) string { return filepath.Join(dir, "00000001.jsonl") }

// verified returns the report on dir, which must be valid.
func verified(t testing.TB, dir string) audit.Report {
	t.Helper()
	report, err := ledger.Verify(dir)
	if err != nil || !report.OK {
		t.Fatalf("%v %v", report.FirstBad, err)
	}
	return report
}

func intent() bailey.Intent {
	return bailey.Intent{Receipt: bailey.NewReceiptID(), Capability: "system.echo", Agent: "local", Session: "s-1", Host: "castle", StartedAt: time.Now()}
}

// call makes one call with a receipt.
func call(t testing.TB, l *testLog) bailey.ReceiptID {
	t.Helper()
	in := intent()
	seal, err := l.Open(context.Background(), in)
	do(t, err)
	do(t, seal(bailey.Outcome{Status: bailey.OK, Decision: "allow", Executed: new(true)}))
	return in.Receipt
}

// varied makes n receipts of every kind, some of them open, with a clock that jumps.
func varied(t testing.TB, l *testLog, n int, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	at := time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC)
	var open []func(bailey.Outcome) error
	for range n {
		at = at.Add(time.Duration(random.IntN(2000)-400) * time.Millisecond)
		in := intent()
		in.Capability = bailey.CapabilityID(fmt.Sprint("git.", random.IntN(4)))
		in.Agent, in.Session = fmt.Sprint("a", random.IntN(3)), bailey.SessionID(fmt.Sprint("s-", random.IntN(6)))
		in.StartedAt, in.Door, in.DryRun = at, "mcp", random.IntN(5) == 0
		seal, err := l.Open(context.Background(), in)
		do(t, err)
		if open = append(open, seal); random.IntN(8) == 0 {
			continue
		}
		i := random.IntN(len(open)) // outcomes come in another order than intents
		status := receipts.Statuses()[random.IntN(6)]
		do(t, open[i](bailey.Outcome{Status: status, Decision: "allow", EndedAt: at}))
		open = append(open[:i], open[i+1:]...)
	}
}
