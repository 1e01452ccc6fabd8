package ledger

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ktest"
	"bailey/internal/receipts"
)

func logger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open opens a ledger in dir and closes it when the test ends.
func open(t testing.TB, c Config) *Log {
	t.Helper()
	l, err := New(c)
	if err != nil {
		t.Fatalf("%v (%s)", err, bailey.HintOf(err))
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func place(t testing.TB) string { return filepath.Join(t.TempDir(), "ledger") }

func first(dir string) string { return filepath.Join(dir, "00000001.jsonl") }

func intent() bailey.Intent {
	return bailey.Intent{Receipt: bailey.NewReceiptID(), Capability: "system.echo", Agent: "local", Session: "s-1", Host: "castle", StartedAt: time.Now()}
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// call makes one call with a receipt.
func call(t testing.TB, l *Log) bailey.ReceiptID {
	t.Helper()
	in := intent()
	seal, err := l.Open(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	if err := seal(bailey.Outcome{Status: bailey.OK, Decision: "allow", Executed: new(true)}); err != nil {
		t.Fatal(err)
	}
	return in.Receipt
}

// verified returns the report on dir, which must be valid.
func verified(t testing.TB, dir string) audit.Report {
	t.Helper()
	report, err := Verify(dir)
	if err != nil || !report.OK {
		t.Fatalf("%v %v", report.FirstBad, err)
	}
	return report
}

func TestCallIsReceipted(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir, Host: "cas tle"})
	id := call(t, l)
	if err := l.Note(context.Background(), "session.end", map[string]string{"session": "s-1"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Note(context.Background(), "gateway.end", nil); err != nil {
		t.Fatal(err)
	}
	list, err := l.Receipts(receipts.Filter{})
	if err != nil || len(list) != 1 || list[0].Intent.Receipt != id || list[0].Seq != 2 || list[0].Outcome == nil || list[0].Outcome.Status != bailey.OK {
		t.Fatalf("%+v %v", list, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if r := verified(t, dir); r.Entries != 5 || r.Intents != 1 || r.Outcomes != 1 || r.Host != "cas_tle" {
		t.Errorf("%+v", r)
	}
	for name, mode := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, first(dir): 0o600, filepath.Join(dir, "lock"): 0o600} {
		if st, err := os.Stat(name); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
}

func TestReopenContinues(t *testing.T) {
	dir := place(t)
	var origin string
	for n := range 3 {
		l := open(t, Config{Dir: dir})
		call(t, l)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		r := verified(t, dir)
		if n > 0 && r.Origin != origin || r.Entries != uint64(3+2*n) {
			t.Errorf("%+v", r)
		}
		origin = r.Origin
	}
}

func TestSealOnce(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	in := intent()
	seal, err := l.Open(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	if err := seal(bailey.Outcome{Receipt: "r-other", Status: bailey.OK}); err != nil {
		t.Fatal(err)
	}
	if err := seal(bailey.Outcome{Status: bailey.Failed}); !errors.Is(err, bailey.Conflict) {
		t.Errorf("sealed twice: %v", err)
	}
	if _, err := l.Open(context.Background(), in); !errors.Is(err, bailey.Conflict) {
		t.Errorf("opened twice: %v", err)
	}
	if r := verified(t, dir); r.Entries != 3 || r.Open != 0 {
		t.Errorf("%+v", r)
	}
	l.Close()
	l = open(t, Config{Dir: dir})
	if _, err := l.Open(context.Background(), in); !errors.Is(err, bailey.Conflict) {
		t.Errorf("opened again after a restart: %v", err)
	}
}

func TestRefusedEntriesWriteNothing(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	ctx := context.Background()
	bad := intent()
	bad.Receipt = "not a receipt"
	if _, err := l.Open(ctx, bad); !errors.Is(err, bailey.Invalid) {
		t.Errorf("a receipt with spaces: %v", err)
	}
	bad = intent()
	bad.Client = strings.Repeat("x", audit.MaxEntry)
	if _, err := l.Open(ctx, bad); !errors.Is(err, bailey.Invalid) {
		t.Errorf("a huge intent: %v", err)
	}
	bad = intent()
	bad.Input = []byte(`{"a":1,"a":2}`)
	if _, err := l.Open(ctx, bad); !errors.Is(err, bailey.Invalid) {
		t.Errorf("a key twice: %v", err)
	}
	for kind, data := range map[string]any{"intent": nil, "outcome": nil, "genesis": nil, "repair": nil, "UPPER": nil, "x\ny": nil, "list": []int{1}, "chan": make(chan int), "huge": map[string]string{"a": strings.Repeat("x", 5<<20)}} {
		if err := l.Note(ctx, kind, data); err == nil {
			t.Errorf("a note of kind %q with %T is taken", kind, data)
		}
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	for range 20 { // if both can proceed, select takes either
		if err := l.Note(gone, "late", nil); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("a note nobody waits for: %v", err)
		}
	}
	call(t, l)
	if r := verified(t, dir); r.Intents != 1 || r.Open != 0 {
		t.Errorf("%+v", r)
	}
}

func TestClosed(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	seal, err := l.Open(context.Background(), intent())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := seal(bailey.Outcome{Status: bailey.OK}); !errors.Is(err, bailey.Unavailable) {
		t.Errorf("seal: %v", err)
	}
	if _, err := l.Open(context.Background(), intent()); !errors.Is(err, bailey.Unavailable) {
		t.Errorf("open: %v", err)
	}
	if err := l.Note(context.Background(), "x", nil); !errors.Is(err, bailey.Unavailable) {
		t.Errorf("note: %v", err)
	}
	if _, err := l.Receipts(receipts.Filter{}); err == nil {
		t.Error("receipts of a closed ledger")
	}
	if err := l.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

// Case 9: 256 callers append concurrently with readers, while callers come and leave; no entry is lost or out of order.
func TestConcurrent(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	const callers, each = 256, 4
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				in := intent()
				seal, err := l.Open(context.Background(), in)
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Note(context.Background(), "note", map[string]string{"of": string(in.Receipt)}); err != nil {
					t.Error(err)
				}
				if err := seal(bailey.Outcome{Status: bailey.OK}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		for range 10 {
			if r, err := l.Verify(); err != nil || !r.OK {
				t.Errorf("while appending: %v %v", r.FirstBad, err)
			}
			if r, err := Verify(dir); err != nil || !r.OK {
				t.Errorf("from outside while appending: %v %v", r.FirstBad, err)
			}
			if _, err := l.Receipts(receipts.Filter{Limit: 5}); err != nil {
				t.Error(err)
			}
		}
	}()
	wg.Wait()
	<-reading
	if r := verified(t, dir); r.Intents != callers*each || r.Open != 0 || r.Entries != 1+3*callers*each || r.Backward != 0 {
		t.Errorf("%+v", r)
	}
}

func TestClosingAnswersEverybody(t *testing.T) {
	for range 20 {
		dir := place(t)
		l := open(t, Config{Dir: dir})
		var wg sync.WaitGroup
		var mu sync.Mutex
		durable := 0
		for range 16 {
			wg.Go(func() {
				for l.Note(context.Background(), "note", nil) == nil {
					mu.Lock()
					durable++
					mu.Unlock()
				}
			})
		}
		time.Sleep(2 * time.Millisecond)
		l.Close()
		wg.Wait()
		if r := verified(t, dir); r.Entries != uint64(1+durable) {
			t.Fatalf("%d entries, %d answered", r.Entries, durable)
		}
	}
}

func TestReceipts(t *testing.T) {
	l := open(t, Config{Dir: place(t)})
	var ids []bailey.ReceiptID
	for i := range 10 {
		in := intent()
		in.Session, in.Capability = bailey.SessionID(fmt.Sprint("s-", i%2)), bailey.CapabilityID(fmt.Sprint("x.", i%3))
		seal, err := l.Open(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, in.Receipt); i == 7 {
			continue // stays open
		}
		if err := seal(bailey.Outcome{Status: bailey.OK, Reason: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		filter receipts.Filter
		want   []int
	}{
		"all":        {receipts.Filter{}, []int{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
		"three":      {receipts.Filter{Limit: 3}, []int{9, 8, 7}},
		"id":         {receipts.Filter{ID: ids[2]}, []int{2}},
		"session":    {receipts.Filter{Session: "s-1", Limit: 2}, []int{9, 7}},
		"capability": {receipts.Filter{Capability: "x.0"}, []int{9, 6, 3, 0}},
		"both":       {receipts.Filter{Capability: "x.0", Session: "s-1"}, []int{9, 3}},
		"none":       {receipts.Filter{ID: "r-none"}, nil},
		"too many":   {receipts.Filter{Limit: 1 << 40}, []int{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
		"negative":   {receipts.Filter{Limit: -1}, []int{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
	} {
		list, err := l.Receipts(c.filter)
		if err != nil || len(list) != len(c.want) {
			t.Errorf("%s: %d receipts, %v", name, len(list), err)
			continue
		}
		for i, r := range list {
			n := c.want[i]
			if r.Intent.Receipt != ids[n] || (r.Outcome == nil) != (n == 7) || r.Outcome != nil && (r.Outcome.Receipt != ids[n] || r.Outcome.Reason != fmt.Sprint(n)) {
				t.Errorf("%s: at %d %+v, want call %d", name, i, r, n)
			}
		}
	}
}

// Case 10: the clock is set back; entries must keep their order, and the step is counted and logged.
func TestClockBack(t *testing.T) {
	dir := place(t)
	now := time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC)
	var said bytes.Buffer
	l := open(t, Config{Dir: dir, Now: func() time.Time { return now }, Log: logger(&said)})
	call(t, l)
	now = now.Add(-time.Hour)
	call(t, l)
	now = now.Add(2 * time.Hour)
	call(t, l)
	if r := verified(t, dir); r.Backward != 1 || r.Entries != 7 {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(said.String(), "the clock went backwards") {
		t.Errorf("nothing said: %s", &said)
	}
	list, err := l.Receipts(receipts.Filter{})
	if err != nil || list[0].Seq != 6 || list[2].Seq != 2 {
		t.Errorf("order is by number: %+v, %v", list, err)
	}
}

// TestClockJumps checks that receipts keep the order of their numbers if the clock jumps, also between two gateways.
func TestClockJumps(t *testing.T) {
	dir := place(t)
	var now time.Time
	var want []bailey.ReceiptID
	for _, year := range []int{2026, 1970, 2199, 1, 2026, 2025} {
		now = time.Date(year, 3, 29, 1, 59, 59, 0, time.UTC)
		l := open(t, Config{Dir: dir, Now: func() time.Time { return now }})
		for range 2 {
			want = append(want, call(t, l))
			now = now.Add(-time.Minute)
		}
		list, err := l.Receipts(receipts.Filter{})
		if err != nil || len(list) != len(want) {
			t.Fatalf("%d: %d receipts, %v", year, len(list), err)
		}
		for i, r := range list { // the newest first
			if r.Intent.Receipt != want[len(want)-1-i] || i > 0 && r.Seq >= list[i-1].Seq {
				t.Errorf("%d: at %d is %s, number %d", year, i, r.Intent.Receipt, r.Seq)
			}
		}
		do(t, l.Close())
	}
	if r := verified(t, dir); r.Open != 0 || r.Intents != len(want) || r.Backward == 0 {
		t.Errorf("%+v", r)
	}
}

func TestOutcomeIsCutToFit(t *testing.T) {
	ktest.Long(t)
	dir := place(t)
	l := open(t, Config{Dir: dir})
	code := 7
	long := strings.Repeat("\x00\xff<é", 1<<14)
	many := make([]string, 5000)
	for i := range many {
		many[i] = long[:100]
	}
	rules := make([]bailey.Rule, 1000)
	for i := range rules {
		rules[i] = bailey.Rule{ID: bailey.RuleID(long[:200]), Source: long[:200], Reason: long[:500], Role: long[:200]}
	}
	text := strings.Repeat("é", bailey.PlanCap/2)
	whole := bailey.Outcome{Status: bailey.OK, Decision: "allow", Executed: new(true), ExitCode: &code, StdoutBytes: 9, TimedOut: true,
		Rules: rules, Reason: long, ManifestDigest: long, PolicyDigest: long, Argv: many, EnvNames: many, Cwd: long, Paths: many, Leases: many, Reaches: many, Approval: bailey.ApprovalID(long),
		Cage:   &bailey.Cage{Kind: "full", Enforced: true, Layers: many, PlanDigest: digestOf(text), Plan: text, Binary: long, BinaryDigest: long},
		Egress: &bailey.EgressReport{EgressTotals: bailey.EgressTotals{Refused: 40, Untold: 2}, Events: slices.Repeat([]bailey.EgressEvent{{Kind: bailey.EgressRefused, Target: long[:300], Reason: long[:512], Hint: long[:512]}}, 40)}}
	argv := bailey.Outcome{Status: bailey.OK, Argv: many, Cwd: "/x", Paths: []string{"/y"}, Reason: "as asked"}
	var ids []bailey.ReceiptID
	for _, o := range []bailey.Outcome{whole, argv} {
		in := intent()
		seal, err := l.Open(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		if err := seal(o); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, in.Receipt)
	}
	verified(t, dir)
	list, err := l.Receipts(receipts.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	if o := list[1].Outcome; list[1].Intent.Receipt != ids[0] || o.Status != bailey.OK || !*o.Executed || *o.ExitCode != 7 || o.StdoutBytes != 9 || !o.TimedOut || !o.Cage.Enforced || o.Egress.Refused != 40 || int(o.Egress.Untold)+len(o.Egress.Events) != 42 {
		t.Errorf("what became of the call is lost: %+v", o)
	}
	if o := list[0].Outcome; o.Argv != nil || o.Cwd != "/x" || len(o.Paths) != 1 || o.Reason != "as asked [receipt cut to fit the ledger]" {
		t.Errorf("more than argv is cut: %+v", o)
	}
	for line := range lines(t, first(dir)) {
		if len(line) > audit.MaxLine {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

func lines(t testing.TB, name string) func(func([]byte) bool) {
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func([]byte) bool) {
		r := bufio.NewReader(bytes.NewReader(data))
		for {
			line, err := r.ReadBytes('\n')
			if err != nil || !yield(line) {
				return
			}
		}
	}
}

func TestRehearsalLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	free, err := Rehearse(dir)
	if left, _ := os.ReadDir(dir); err != nil || free == 0 || len(left) != 0 {
		t.Errorf("%d bytes free, %v, left %v", free, err, left)
	}
	if _, err := Rehearse(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in no directory: %v", err)
	}
}

// TestTreeIsCarried checks that the writer's tree equals the tree of the entries on the disk, after groups, failures
// and a new start.
func TestTreeIsCarried(t *testing.T) {
	dir := place(t)
	for range 2 {
		l := open(t, Config{Dir: dir})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { call(t, l) })
		}
		all.Wait()
		if err := l.Note(context.Background(), "bad kind", nil); err == nil {
			t.Error("a note of a kind that is none")
		}
		do(t, l.Close())
		r := verified(t, dir)
		if l.chain.tree.Root() != r.Root || l.chain.tree.Size() != r.Entries {
			t.Errorf("it carries %d entries, %d are on the disk", l.chain.tree.Size(), r.Entries)
		}
	}
	l := open(t, Config{Dir: dir})
	defer l.Close()
	if r := verified(t, dir); l.chain.tree.Root() != r.Root {
		t.Error("another tree after a start")
	}
}

// TestKindsOfItsOwn checks that no caller can write entries of the kinds that are reserved for the ledger.
func TestKindsOfItsOwn(t *testing.T) {
	l := open(t, Config{Dir: place(t)})
	defer l.Close()
	for _, kind := range []string{audit.KindGenesis, audit.KindIntent, audit.KindOutcome, audit.KindRepair, audit.KindPlan, audit.KindSegment, audit.KindKey} {
		if err := l.Note(context.Background(), kind, nil); bailey.KindOf(err) != bailey.Internal {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func outcomeOK() bailey.Outcome {
	return bailey.Outcome{Status: bailey.OK, Decision: "allow", Executed: new(true)}
}

// Receipts returns the receipts that match f.
func (l *Log) Receipts(f receipts.Filter) ([]receipts.Record, error) {
	page, err := l.Find(context.Background(), f)
	return page.Records, err
}
