package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/gate"
	"bailey/internal/jail"
	"bailey/internal/localapi"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
	"bailey/internal/server"
)

func (a *commands) benchApprovalsVerb() *cobra.Command {
	var n, calls int
	cmd := a.measureVerb(&cobra.Command{
		Use: "approvals", Short: "Time an answer until its call runs, and measure calls that wait",
		Long: `Time answers to waiting calls of system.date, from the answer until it is durable (row answer),
until the tool is started (run), and until its result is returned (result). Row fsync is an append of 512
bytes that is synced to the same disk; the rows alternate. Then let --calls calls wait at once, and as many be
parked, and measure memory, goroutines, descriptors, and the processor time of two idle seconds. The calls go
to a separate ledger, in a temporary directory on the disk of TMPDIR.`,
	}, func(ctx context.Context, _ []string) ([]Row, error) {
		if n < 1 || calls < 1 || calls > approve.DefaultOpen {
			return nil, bailey.Invalid.Errorf(fmt.Sprintf("use at least one of each, and at most %d calls", approve.DefaultOpen),
				"%d answers, %d calls", n, calls)
		}
		return benchApprovals(ctx, n, calls)
	})
	cmd.Flags().IntVarP(&n, "n", "n", 200, "number of answers")
	cmd.Flags().IntVar(&calls, "calls", approve.DefaultOpen, "number of calls that wait")
	return cmd
}

func benchApprovals(ctx context.Context, n, calls int) ([]Row, error) {
	rows, err := benchAnswers(ctx, n)
	if err != nil {
		return nil, err
	}
	for _, w := range []struct {
		name     string
		patience time.Duration
	}{{"waiting", time.Hour}, {"parked", 0}} {
		row, err := benchWaiting(ctx, w.name, calls, w.patience)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// askingRule requires approval for system.date.
const askingRule = `@id("bench-asks") @reason("a person looks first") @approval("count=1,ttl=10m")
forbid (principal, action == Action::"system.date", resource) unless { context.approvals.contains("bench-asks") };`

// approvalBench is a gate that requires approval for system.date.
type approvalBench struct {
	*server.Server
	dir string

	mu  sync.Mutex
	ran time.Time // start of the newest tool
}

func openInquiry() (q *approvalBench, err error) {
	q = &approvalBench{Server: &server.Server{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Bare: jail.Bare}}
	if q.dir, err = os.MkdirTemp("", "bailey-bench"); err != nil {
		return q, err
	}
	if _, err = q.NewGate(localapi.Home(q.dir), q.recordRunStart); err != nil {
		return q, err
	}
	e, err := policy.Load(policy.Config{Actions: policyfiles.Actions(q.Catalog),
		Sources: append(server.Rules(q.Bare), policy.Source{Name: "bench.cedar", Text: []byte(askingRule)})})
	if err != nil {
		return q, err
	}
	q.Rules.Use(policyfiles.Edition{Engine: e})
	return q, nil
}

func (q *approvalBench) close() {
	q.Server.Close()
	os.RemoveAll(q.dir)
}

func (q *approvalBench) recordRunStart(s gate.Step) {
	if s.Stage == "run" {
		q.mu.Lock()
		q.ran = s.Start
		q.mu.Unlock()
	}
}

// makeCall makes a call in a separate session. asked receives the question when it is open.
func (q *approvalBench) makeCall(ctx context.Context, session string, patience time.Duration,
	asked func(bailey.Question)) bailey.Result {
	return q.Gate.Do(ctx, bailey.Call{
		Capability: "system.date", Input: map[string]any{}, Door: "bench", Dir: q.dir, Patience: patience,
		Asked:     func(_ context.Context, o bailey.Question) { asked(o) },
		Principal: bailey.Principal{Agent: "local"}, Session: bailey.Session{ID: bailey.SessionID("s-" + session)},
	})
}

// benchAnswers times n answers, one after the other.
func benchAnswers(ctx context.Context, n int) ([]Row, error) {
	q, err := openInquiry()
	if err != nil {
		return nil, err
	}
	defer q.close()
	raw, err := newRawFile(q.dir)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	line := []byte(strings.Repeat("x", benchLine-1) + "\n")
	times := map[string][]time.Duration{}
	const warm = 5
	for i := range n + warm {
		if i == warm {
			clear(times)
		}
		time.Sleep(thinkTime)
		start := time.Now()
		if err := raw.Append(line); err != nil {
			return nil, err
		}
		times["fsync"] = append(times["fsync"], time.Since(start))
		if err := q.timeAnswer(ctx, times); err != nil {
			return nil, err
		}
	}
	rows, _ := timeRows(times, "fsync", "fsync", "answer", "run", "result")
	return rows, ctx.Err()
}

// timeAnswer makes one call wait, answers it, and records the times that follow.
func (q *approvalBench) timeAnswer(ctx context.Context, times map[string][]time.Duration) error {
	asked, done := make(chan bailey.Question, 1), make(chan bailey.Result, 1)
	go func() { done <- q.makeCall(ctx, "bench", time.Hour, func(o bailey.Question) { asked <- o }) }()
	var o bailey.Question
	select {
	case o = <-asked:
	case r := <-done:
		return errors.Join(errors.New("a call did not wait"), r.Err)
	}
	time.Sleep(thinkTime)
	start := time.Now()
	if _, err := q.Queue.Answer(ctx,
		approve.Given{Question: o.ID, Digest: o.Digest, Grant: true, Person: "bench",
			Operator: string(localapi.Env)}); err != nil {
		return err
	}
	took := time.Since(start)
	r := <-done
	all := time.Since(start)
	if r.Status != bailey.OK {
		return errors.Join(errors.New("an answered call did not run"), r.Err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	times["answer"] = append(times["answer"], took)
	times["run"] = append(times["run"], q.ran.Sub(start))
	times["result"] = append(times["result"], all)
	return nil
}

// idleTime is the time without activity during which CPU time is measured.
const idleTime = 2 * time.Second

// benchWaiting makes calls wait, each in a separate session, and measures them.
func benchWaiting(ctx context.Context, name string, calls int, patience time.Duration) (row Row, err error) {
	q, err := openInquiry()
	if err != nil {
		return row, err
	}
	defer q.close()
	heap, goroutines := liveMemory()
	_, files := processUsage()
	end, err := q.openQuestions(ctx, calls, patience)
	if err != nil {
		return row, err
	}
	defer end()
	now, more := liveMemory()
	start := cpuTime()
	select {
	case <-time.After(idleTime):
	case <-ctx.Done():
		return row, context.Cause(ctx)
	}
	cpu := cpuTime() - start
	rss, open := processUsage()
	return Row{Name: name, N: calls, Facts: map[string]float64{
		"goroutines": float64(more - goroutines), "heap_mb": float64(int64(now)-int64(heap)) / 1e6, // increases
		"rss_mb": float64(rss) / 1e6, "files": float64(open - files),
		"cpu_ms": toMicros(cpu) / 1e3, "idle_s": idleTime.Seconds()}}, nil
}

// openQuestions makes calls until the given number of questions is open. end releases the calls that wait for an answer.
func (q *approvalBench) openQuestions(ctx context.Context, calls int, patience time.Duration) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	end = func() { cancel(); all.Wait() }
	asked := make(chan error, 2*calls)
	for i := range calls { // one after the other: the time of the asking is not measured
		all.Go(func() {
			r := q.makeCall(ctx, fmt.Sprint(i), patience, func(bailey.Question) { asked <- nil })
			switch {
			case r.Status == bailey.Pending: // returns at once without patience or a free slot
				asked <- nil
			case ctx.Err() == nil:
				asked <- errors.Join(fmt.Errorf("call %d did not wait: %s", i, r.Status), r.Err)
			}
		})
		if err := <-asked; err != nil {
			end()
			return nil, err
		}
	}
	return end, nil
}

// liveMemory returns the live memory after a garbage collection, in bytes of heap and stacks, and the number of goroutines.
func liveMemory() (heap uint64, goroutines int) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse, runtime.NumGoroutine()
}
