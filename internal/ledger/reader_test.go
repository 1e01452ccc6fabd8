package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ktest"
	"bailey/internal/receipts"
)

// readAll returns the receipts of Each and the head that it reports.
func readAll(t *testing.T, r *Reader, f receipts.Filter) (list []receipts.Record, head audit.Head, err error) {
	t.Helper()
	begun := 0
	err = r.Each(context.Background(), f, func(origin string, h audit.Head) error {
		begun, head = begun+1, h
		if len(origin) != 32 || len(list) > 0 {
			t.Errorf("origin %q after %d receipts", origin, len(list))
		}
		return nil
	}, func(r receipts.Record) error { list = append(list, r); return nil })
	if begun > 1 || err == nil && begun != 1 {
		t.Errorf("begun %d times", begun)
	}
	return list, head, err
}

// everyPage returns the result of a scan, page by page.
func everyPage(t *testing.T, l *Log, f receipts.Filter) (list []receipts.Record) {
	t.Helper()
	for f.Oldest, f.Limit = true, receipts.MaxLimit; ; f.After = list[len(list)-1].Seq {
		page, err := l.Find(context.Background(), f)
		do(t, err)
		if list = append(list, page.Records...); !page.More {
			return list
		}
	}
}

// TestReaderReadsWhatTheLogHolds checks that a reader returns the same as the log, with every filter and over several
// segments, and does not change the directory.
func TestReaderReadsWhatTheLogHolds(t *testing.T) {
	ktest.Long(t)
	dir := place(t)
	l := open(t, Config{Dir: dir, Segment: 16 << 10})
	varied(t, l, 150, 3)
	before, err := os.ReadDir(dir)
	do(t, err)
	own, err := OpenReader(dir)
	do(t, err)
	defer own.Close()
	other, err := OpenCopy(dir)
	do(t, err)
	defer other.Close()
	for _, r := range []*Reader{own, other} {
		for _, f := range []receipts.Filter{{}, {Status: bailey.OK}, {Status: receipts.Open}, {Session: "s-3"}, {Capability: "git.1", Agent: "a2"}, {After: 100, Before: 200}} {
			got, head, err := readAll(t, r, f)
			if want := everyPage(t, l, f); err != nil || len(want) == 0 || !reflect.DeepEqual(got, want) || head != l.writer.end.head {
				t.Errorf("%+v: %d receipts, want %d; head %d; %v", f, len(got), len(want), head.Seq, err)
			}
			page, err := r.Find(context.Background(), f)
			if want, werr := l.Find(context.Background(), f); err != nil || werr != nil || !reflect.DeepEqual(page, want) {
				t.Errorf("%+v: a page of %d receipts, %v %v", f, len(page.Records), err, werr)
			}
		}
	}
	after, err := os.ReadDir(dir)
	if do(t, err); fmt.Sprint(before) != fmt.Sprint(after) || len(own.files) < 4 {
		t.Errorf("%d segments; before %v, after %v", len(own.files), before, after)
	}
}

// TestReaderFindsLateOutcomes checks that an outcome that comes long after its intent is found with it, and that the
// memory for pending receipts is limited.
func TestReaderFindsLateOutcomes(t *testing.T) {
	ktest.Long(t)
	dir := place(t)
	l := open(t, Config{Dir: dir, Segment: 3 << 20})
	slow, never := intent(), intent()
	seal, err := l.Open(context.Background(), slow)
	do(t, err)
	_, err = l.Open(context.Background(), never)
	do(t, err)
	for range 140 {
		in := intent()
		in.Dir = strings.Repeat("d", 50<<10)
		end, err := l.Open(context.Background(), in)
		do(t, err)
		do(t, end(bailey.Outcome{Status: bailey.OK}))
	}
	do(t, seal(bailey.Outcome{Status: bailey.Killed}))
	r, err := OpenReader(dir)
	do(t, err)
	defer r.Close()
	got, _, err := readAll(t, r, receipts.Filter{})
	do(t, err)
	if len(got) != 142 || got[0].Status() != bailey.Killed || got[1].Status() != receipts.Open || got[2].Status() != bailey.OK {
		t.Errorf("%d receipts: %v", len(got), got[0].Status())
	}
	if !slices.IsSortedFunc(got, func(a, b receipts.Record) int { return int(a.Seq) - int(b.Seq) }) {
		t.Error("not in order")
	}
}

// TestReaderRefuses checks that nothing is exported if the ledger is incomplete, damaged or not a ledger.
func TestReaderRefuses(t *testing.T) {
	ktest.Long(t)
	for name, c := range map[string]struct {
		harm func(t *testing.T, dir string)
		want error
	}{
		"a byte changed": {func(t *testing.T, dir string) {
			data, err := os.ReadFile(first(dir))
			do(t, err)
			do(t, os.WriteFile(first(dir), bytes.Replace(data, []byte("git."), []byte("gut."), 1), 0o600))
		}, bailey.Conflict},
		"a segment gone": {func(t *testing.T, dir string) { do(t, os.Remove(filepath.Join(dir, segmentFile(2)))) }, bailey.Conflict},
		"emptied": {func(t *testing.T, dir string) {
			do(t, os.Remove(filepath.Join(dir, segmentFile(2))))
			for i := 3; os.Remove(filepath.Join(dir, segmentFile(i))) == nil; i++ {
			}
			do(t, os.Truncate(first(dir), 0))
		}, bailey.NotFound},
		"the first gone": {func(t *testing.T, dir string) { do(t, os.Remove(first(dir))) }, nil},
		"an entry gone": {func(t *testing.T, dir string) {
			data, err := os.ReadFile(first(dir))
			do(t, err)
			lines := bytes.SplitAfter(data, []byte("\n"))
			do(t, os.WriteFile(first(dir), bytes.Join(slices.Delete(lines, 3, 4), nil), 0o600))
		}, bailey.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			l := open(t, Config{Dir: dir, Segment: 16 << 10})
			varied(t, l, 150, 3)
			do(t, l.Close())
			c.harm(t, dir)
			for _, open := range []func(string) (*Reader, error){OpenReader, OpenCopy} {
				r, err := open(dir)
				if err == nil {
					var list []receipts.Record
					list, _, err = readAll(t, r, receipts.Filter{})
					r.Close()
					if len(list) > 0 {
						t.Errorf("%d receipts before %v", len(list), err)
					}
				}
				if err == nil || bailey.HintOf(err) == "" || c.want != nil && !errors.Is(err, c.want) {
					t.Errorf("%v (%s), want %v", err, bailey.HintOf(err), c.want)
				}
			}
		})
	}
}

// TestReaderNoticesAChange checks that a reader notices if the ledger is cut between its two passes.
func TestReaderNoticesAChange(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	varied(t, l, 50, 3)
	do(t, l.Close())
	r, err := OpenReader(dir)
	do(t, err)
	defer r.Close()
	err = r.Each(context.Background(), receipts.Filter{}, func(string, audit.Head) error {
		data, err := os.ReadFile(first(dir))
		do(t, err)
		return os.Truncate(first(dir), int64(bytes.LastIndexByte(data[:len(data)-1], '\n')+1))
	}, func(receipts.Record) error { return nil })
	if !errors.Is(err, bailey.Conflict) || !strings.Contains(err.Error(), "changed while it was read") {
		t.Errorf("%v", err)
	}
}

// TestReaderLeavesOutATornTail checks that a partial last line is left out and counted, for example in a copy that was
// made while a writer was active.
func TestReaderLeavesOutATornTail(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	call(t, l)
	do(t, l.Close())
	f, err := os.OpenFile(first(dir), os.O_APPEND|os.O_WRONLY, 0)
	do(t, err)
	_, err = f.WriteString(`{"hash":"00`)
	do(t, err)
	do(t, f.Close())
	r, err := OpenCopy(dir)
	do(t, err)
	defer r.Close()
	if list, _, err := readAll(t, r, receipts.Filter{}); err != nil || len(list) != 1 || r.Rest != 11 {
		t.Errorf("%d receipts, %d bytes left out, %v", len(list), r.Rest, err)
	}
}

// TestReaderEnds checks that reading stops if the caller's context ends.
func TestReaderEnds(t *testing.T) {
	ktest.Long(t)
	dir := place(t)
	l := open(t, Config{Dir: dir})
	varied(t, l, 300, 3)
	r, err := OpenReader(dir)
	do(t, err)
	defer r.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Find(ctx, receipts.Filter{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := l.Find(ctx, receipts.Filter{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestReaderWithoutALedger(t *testing.T) {
	empty := t.TempDir()
	for _, open := range []func(string) (*Reader, error){OpenReader, OpenCopy} {
		for _, dir := range []string{empty, filepath.Join(empty, "none")} {
			if _, err := open(dir); err == nil || !strings.Contains(err.Error(), "there is no ") || !strings.Contains(err.Error(), dir) || bailey.HintOf(err) == "" {
				t.Errorf("%s: %v", dir, err)
			}
		}
	}
	dir := place(t)
	call(t, open(t, Config{Dir: dir}))
	if _, err := OpenCopy(filepath.Dir(dir)); !strings.Contains(bailey.HintOf(err), dir) {
		t.Errorf("%v (%s)", err, bailey.HintOf(err))
	}
	if entries, err := os.ReadDir(empty); err != nil || len(entries) > 0 {
		t.Errorf("something was made: %v %v", entries, err)
	}
}

// varied makes n receipts of every kind, some of them open, with a clock that jumps.
func varied(t testing.TB, l *Log, n int, seed uint64) {
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
