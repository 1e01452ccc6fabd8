package index

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger"
	"bailey/internal/receipts"
)

// grow writes a ledger of n receipts without a writer, some of them a second apart, with few agents, sessions and
// capabilities.
func grow(t testing.TB, dir string, n int) (ids []bailey.ReceiptID) {
	t.Helper()
	do(t, os.MkdirAll(dir, 0o700))
	f, err := os.OpenFile(first(dir), os.O_CREATE|os.O_WRONLY, 0o600)
	do(t, err)
	w := bufio.NewWriterSize(f, 1<<20)
	var head audit.Head
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	entry := func(kind string, at time.Time, data any) {
		raw, err := json.Marshal(data)
		do(t, err)
		line, hash, err := audit.Append(head.Hash, audit.Entry{Seq: head.Seq + 1, Time: at, Kind: kind, Data: raw})
		do(t, err)
		_, err = w.Write(line)
		do(t, err)
		head = audit.Head{Seq: head.Seq + 1, Hash: hash}
	}
	entry(audit.KindGenesis, start, audit.Genesis{Format: audit.Format, Origin: "000102030405060708090a0b0c0d0e0f", Host: "castle"})
	random := rand.New(rand.NewPCG(1, 2))
	statuses := receipts.Statuses()
	for i := range n {
		at := start.Add(time.Duration(i) * time.Second)
		in := bailey.Intent{Receipt: bailey.ReceiptID(fmt.Sprintf("r-%026d", i)), Capability: bailey.CapabilityID(fmt.Sprint("git.c", random.IntN(40))),
			Input: json.RawMessage(`{"repo":"."}`), Agent: fmt.Sprint("agent-", random.IntN(5)), Person: "me", Host: "castle",
			Session: bailey.SessionID(fmt.Sprintf("s-%026d", i/50)), Door: "mcp", Dir: "/home/me/project", StartedAt: at}
		ids = append(ids, in.Receipt)
		entry(audit.KindIntent, at, in)
		status := bailey.OK
		if random.IntN(10) == 0 {
			status = statuses[1+random.IntN(5)]
		}
		entry(audit.KindOutcome, at, bailey.Outcome{Receipt: in.Receipt, Status: status, Decision: "allow", Executed: new(true),
			Rules: []bailey.Rule{{ID: "starter", Source: "starter.cedar:3"}}, Argv: []string{"git", "status"}, EndedAt: at.Add(time.Millisecond)})
	}
	do(t, w.Flush())
	do(t, f.Close())
	return ids
}

// BenchmarkIndex finds receipts among many (BAILEY_BENCH_RECEIPTS; the published figures are for a million). It
// compares each query with a lookup by primary key in the same run.
func BenchmarkIndex(b *testing.B) {
	n, _ := strconv.Atoi(os.Getenv("BAILEY_BENCH_RECEIPTS"))
	n = max(n, 20_000)
	dir := place(b)
	ids := grow(b, dir, n)
	began := time.Now()
	l := open(b, ledger.Config{Dir: dir})
	b.Logf("%d receipts: the log opened in %v", n, time.Since(began))
	x := New(Config{Path: filepath.Join(filepath.Dir(dir), "index.db"), Ledger: l.Log})
	do(b, os.Chmod(filepath.Dir(dir), 0o700))
	ctx := context.Background()
	find := func(f receipts.Filter) int {
		p, err := x.findIndexed(ctx, withLimit(f))
		do(b, err)
		return len(p.Records)
	}
	began = time.Now()
	find(receipts.Filter{Limit: 1})
	st, err := os.Stat(x.path)
	do(b, err)
	b.Logf("made in %v, %d MB", time.Since(began), st.Size()>>20)
	do(b, x.Close())
	began = time.Now()
	find(receipts.Filter{Limit: 1})
	b.Logf("opened and examined in %v", time.Since(began))
	defer x.Close()

	median := func(f func(int)) time.Duration {
		var took []time.Duration
		for i := range 201 {
			began := time.Now()
			f(i)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	key := median(func(i int) {
		var seq uint64
		do(b, x.db.QueryRow("SELECT oseq FROM receipt WHERE seq = ?", 2+2*(i*7919%n)).Scan(&seq))
	})
	show := median(func(i int) { find(receipts.Filter{ID: ids[i*7919%n]}) })
	b.Logf("lookup by primary key %v, a receipt by its id %v", key, show)
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n/2) * time.Second)
	for name, f := range map[string]receipts.Filter{
		"newest":              {},
		"status":              {Status: bailey.Killed},
		"capability":          {Capability: "git.c7"},
		"agent":               {Agent: "agent-3"},
		"session":             {Session: bailey.SessionID(fmt.Sprintf("s-%026d", n/100))},
		"status, capability":  {Status: bailey.Refused, Capability: "git.c7"},
		"status, none such":   {Status: receipts.Open, Agent: "agent-1", Capability: "git.c1"},
		"since":               {Since: day, Until: day.Add(time.Hour)},
		"all":                 {Status: bailey.Refused, Capability: "git.c7", Agent: "agent-3", Since: day.Add(-240 * time.Hour), Until: day},
		"status, a month ago": {Status: bailey.Refused, Until: day},
	} {
		got := 0
		took := median(func(int) { got = find(f) })
		rows := median(func(int) {
			var more bool
			_, err := x.queryPlaces(ctx, withLimit(f), &more)
			do(b, err)
		})
		b.Logf("%-20s %3d receipts: index %8v = %5.1f lookups; with the ledger %8v = %4.1f receipts by id", name, got, rows, float64(rows)/float64(key), took, float64(took)/float64(show))
	}
}

func withLimit(f receipts.Filter) receipts.Filter { f.Check(); return f }
