package index

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ktest"
	"bailey/internal/ledger"
	"bailey/internal/receipts"
)

// anyFilter returns a random filter.
func anyFilter(random *rand.Rand, size uint64) (f receipts.Filter) {
	maybe := func() bool { return random.IntN(3) == 0 }
	if maybe() {
		f.Status = receipts.Statuses()[random.IntN(7)]
	}
	if maybe() {
		f.Capability = bailey.CapabilityID(fmt.Sprint("git.", random.IntN(5)))
	}
	if maybe() {
		f.Agent = fmt.Sprint("a", random.IntN(4))
	}
	if maybe() {
		f.Session = bailey.SessionID(fmt.Sprint("s-", random.IntN(7)))
	}
	start := time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC)
	if maybe() {
		f.Since = start.Add(time.Duration(random.IntN(int(size)*300)) * time.Millisecond)
	}
	if maybe() {
		f.Until = start.Add(time.Duration(random.IntN(int(size)*300)) * time.Millisecond)
	}
	if maybe() {
		f.Before = random.Uint64N(size + 2)
	}
	if maybe() {
		f.After = random.Uint64N(size + 2)
	}
	if maybe() {
		f.Size = random.Uint64N(size) + 1
	}
	f.Oldest, f.Limit = maybe(), random.IntN(40)
	return f
}

// likeTheScan compares the index's answers to random queries with a scan of the ledger.
func likeTheScan(t *testing.T, x *Index, questions int) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 7))
	some := 0
	to := x.ledger.Durable()
	size := to.Tree.Size()
	for range questions {
		f := anyFilter(random, size)
		do(t, f.Check())
		got, err := x.findIndexed(context.Background(), f)
		if err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		want, err := x.ledger.Find(context.Background(), f)
		do(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v:\nindex %d receipts, more %v, head %d\nscan  %d receipts, more %v, head %d", f,
				len(got.Records), got.More, got.Head.Seq, len(want.Records), want.More, want.Head.Seq)
		}
		some += len(got.Records)
	}
	if some == 0 {
		t.Error("no question had an answer")
	}
}

// TestIndexAnswersLikeTheScan checks that the index answers like the ledger for every filter, also while it grows, over
// several segments and after a start.
func TestIndexAnswersLikeTheScan(t *testing.T) {
	ktest.Long(t)
	dir := place(t)
	c := ledger.Config{Dir: dir, Segment: 16 << 10}
	l := open(t, c)
	x := indexed(t, l, &said{})
	for round := range 4 {
		varied(t, l, 60, uint64(round))
		likeTheScan(t, x, 200)
	}
	do(t, x.Close())
	do(t, l.Close())
	l = open(t, c)
	varied(t, l, 20, 9)
	var log said
	x = indexed(t, l, &log)
	likeTheScan(t, x, 200)
	if r := verified(t, dir); r.Segments < 4 || log.String() != "" {
		t.Errorf("%d segments, want some; the index said %q, want nothing", r.Segments, &log)
	}
}

// TestIndexIsMadeAnew checks that the answer is right if the file is damaged in any way, that the file is rebuilt, and
// that the operator's log gives the reason.
func TestIndexIsMadeAnew(t *testing.T) {
	ktest.Long(t)
	other := func(t *testing.T, x *Index) { // an index of another ledger
		l := open(t, ledger.Config{Dir: place(t)})
		varied(t, l, 120, 3)
		y := indexed(t, l, &said{})
		_, err := y.Find(context.Background(), receipts.Filter{})
		do(t, err)
		do(t, y.Close())
		data, err := os.ReadFile(y.path)
		do(t, err)
		do(t, os.WriteFile(x.path, data, 0o600))
	}
	change := func(statement string) func(*testing.T, *Index) {
		return func(t *testing.T, x *Index) {
			db, err := sql.Open("sqlite", sqliteDSN(x.path))
			do(t, err)
			_, err = db.Exec(statement)
			do(t, err)
			do(t, db.Close())
		}
	}
	unsealed := func(harm func(*testing.T, *Index)) func(*testing.T, *Index) { // as after a crash
		return func(t *testing.T, x *Index) { harm(t, x); do(t, os.Remove(x.path+sealSuffix)) }
	}
	// by an attacker who can compute the seal
	resealed := func(harm func(*testing.T, *Index)) func(*testing.T, *Index) {
		return func(t *testing.T, x *Index) {
			harm(t, x)
			f, err := os.Open(x.path)
			do(t, err)
			defer f.Close()
			sum, err := digestReader(t.Context(), f)
			do(t, err)
			do(t, os.WriteFile(x.path+sealSuffix, sum, 0o600))
		}
	}
	for name, c := range map[string]struct {
		harm  func(t *testing.T, x *Index)
		quiet bool // no message: deleting the index is allowed
	}{
		"deleted":     {func(t *testing.T, x *Index) { do(t, os.Remove(x.path)) }, true},
		"emptied":     {func(t *testing.T, x *Index) { do(t, os.Truncate(x.path, 0)) }, false},
		"cut":         {func(t *testing.T, x *Index) { do(t, os.Truncate(x.path, 9000)) }, false},
		"no database": {func(t *testing.T, x *Index) { do(t, os.WriteFile(x.path, []byte(strings.Repeat("x", 8192)), 0o600)) }, false},
		"wider mode":  {func(t *testing.T, x *Index) { do(t, os.Chmod(x.path, 0o644)) }, false},
		"hard link":   {func(t *testing.T, x *Index) { do(t, os.Link(x.path, x.path+".too")) }, false},
		"symlink": {func(t *testing.T, x *Index) {
			do(t, os.Rename(x.path, x.path+"2"))
			do(t, os.Symlink(x.path+"2", x.path))
		}, false},
		"rows changed":     {change("UPDATE receipt SET status = 'ok', started = 0"), false},
		"outcomes gone":    {change("UPDATE receipt SET status = 'open', oseq = 0"), false},
		"another ledger's": {unsealed(other), false},
		"older schema":     {unsealed(change("PRAGMA user_version=0")), false},
		"no table":         {unsealed(change("DROP TABLE receipt")), false},
		"no index":         {unsealed(change("DROP INDEX by_status")), false},
		"no mark":          {unsealed(change("DELETE FROM mark")), false},
		"places changed":   {unsealed(change("UPDATE receipt SET offset = 0, length = 10")), false},
		"mark ahead":       {unsealed(change("UPDATE mark SET offset = offset + 100000")), false},
		"mark in the void": {unsealed(change("UPDATE mark SET segment = 7")), false},
		"mark moved":       {unsealed(change("UPDATE mark SET seq = seq + 2")), false},
		"a trigger":        {resealed(change("CREATE TRIGGER t AFTER INSERT ON receipt BEGIN DELETE FROM receipt; END")), false},
		"a constraint":     {resealed(change("ALTER TABLE receipt ADD COLUMN x INTEGER GENERATED ALWAYS AS (NULL) VIRTUAL")), false},
		"a view":           {resealed(change("CREATE VIEW v AS SELECT * FROM receipt")), false},
		"a huge file":      {func(t *testing.T, x *Index) { do(t, os.Truncate(x.path, 1<<41)) }, false},
		"a huge seal":      {func(t *testing.T, x *Index) { do(t, os.Truncate(x.path+sealSuffix, 1<<41)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, ledger.Config{Dir: place(t)})
			varied(t, l, 100, 4)
			var log said
			x := indexed(t, l, &log)
			_, err := x.Find(context.Background(), receipts.Filter{})
			do(t, err)
			do(t, x.Close())
			c.harm(t, x)
			likeTheScan(t, x, 30)
			if st, err := os.Lstat(x.path); err != nil || st.Mode() != 0o600 {
				t.Errorf("the file: %v %v", st, err)
			}
			if got := strings.Count(log.String(), "rebuilding"); got != 1 && !c.quiet || got > 1 {
				t.Errorf("said %d times: %s", got, &log)
			}
			likeTheScan(t, x, 20)
		})
	}
}

// TestIndexCorruptAtRandom checks that no answer is incomplete if bytes change, in a closed index or in one that is in
// use.
func TestIndexCorruptAtRandom(t *testing.T) {
	ktest.Long(t)
	l := open(t, ledger.Config{Dir: place(t)})
	varied(t, l, 150, 5)
	var log said
	x := indexed(t, l, &log)
	_, err := x.Find(context.Background(), receipts.Filter{})
	do(t, err)
	random := rand.New(rand.NewPCG(8, 8))
	for i := range 60 {
		if i%3 > 0 {
			do(t, x.Close())
		} else { // the whole index must be in the file, not in the WAL or in memory
			_, err := x.db.Exec("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA shrink_memory")
			do(t, err)
			x.recordStamps()
		}
		if i%3 > 1 { // as after a crash
			do(t, os.Remove(x.path+sealSuffix))
		}
		data, err := os.ReadFile(x.path)
		do(t, err)
		if len(data) == 0 {
			t.Fatal("all of it is in the log beside it")
		}
		for range 1 + random.IntN(20) {
			data[random.IntN(len(data))] ^= byte(1 + random.IntN(255))
		}
		do(t, os.WriteFile(x.path, data, 0o600))
		later := time.Now().Add(time.Duration(i+1) * time.Second) // a coarse clock would hide the write
		do(t, os.Chtimes(x.path, later, later))
		likeTheScan(t, x, 12)
	}
	t.Logf("made anew %d times of 60", strings.Count(log.String(), "rebuilding"))
}

// TestIndexAhead checks a ledger that is older than its index, for example because it was restored from a copy, or
// because the disk lost a tail that was already indexed.
func TestIndexAhead(t *testing.T) {
	ktest.Long(t)
	for name, cut := range map[string]func(older, all []byte) []byte{
		"restored":        func(older, all []byte) []byte { return older },
		"torn":            func(older, all []byte) []byte { return all[:len(older)+100] },
		"torn at the end": func(older, all []byte) []byte { return all[:len(all)-7] },
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			l := open(t, ledger.Config{Dir: dir})
			varied(t, l, 50, 6)
			older, err := os.ReadFile(first(dir))
			do(t, err)
			older = older[:l.Durable().Bytes]
			varied(t, l, 50, 7)
			x := indexed(t, l, &said{})
			_, err = x.Find(context.Background(), receipts.Filter{})
			do(t, err)
			do(t, x.Close())
			do(t, l.Close())
			all, err := os.ReadFile(first(dir))
			do(t, err)
			do(t, os.WriteFile(first(dir), cut(older, all), 0o600))
			l = open(t, ledger.Config{Dir: dir})
			call(t, l)
			var log said
			x = indexed(t, l, &log)
			likeTheScan(t, x, 100)
			if !strings.Contains(log.String(), "rebuilding") {
				t.Errorf("nothing said: %s", &log)
			}
		})
	}
}

// TestIndexIsNeverAhead checks that the index contains only durable entries.
func TestIndexIsNeverAhead(t *testing.T) {
	held, release := make(chan struct{}, 1), make(chan struct{})
	var hold sync.Once
	armed := false
	l := open(t, ledger.Config{Dir: place(t), Wrap: func(d ledger.Disk) ledger.Disk {
		return slowDisk{d, func() {
			if armed {
				hold.Do(func() { held <- struct{}{}; <-release })
			}
		}}
	}})
	varied(t, l, 10, 1)
	x := indexed(t, l, &said{})
	page, err := l.Find(t.Context(), receipts.Filter{})
	do(t, err)
	before := page.Head
	armed = true
	done := make(chan error, 1)
	go func() { done <- l.Note(context.Background(), "note", nil) }()
	<-held // written but not synced
	page, err = x.Find(context.Background(), receipts.Filter{})
	if err != nil || page.Head != before {
		t.Errorf("while an entry is not durable: %+v %v, want %+v", page.Head, err, before)
	}
	close(release)
	do(t, <-done)
	if page, err = x.Find(context.Background(), receipts.Filter{}); err != nil || page.Head.Seq != before.Seq+1 {
		t.Errorf("%+v %v", page.Head, err)
	}
}

type slowDisk struct {
	ledger.Disk
	before func()
}

func (d slowDisk) Sync() error { d.before(); return d.Disk.Sync() }

// TestIndexTogether runs many queries concurrently, while calls continue and the file is deleted at times.
func TestIndexTogether(t *testing.T) {
	l := open(t, ledger.Config{Dir: place(t)})
	varied(t, l, 50, 2)
	x := indexed(t, l, &said{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 3))
			for range 30 {
				f := anyFilter(random, 100)
				f.Size = 90
				do(t, f.Check())
				got, err := x.findIndexed(context.Background(), f)
				want, werr := l.Find(context.Background(), f)
				if err != nil || werr != nil || !reflect.DeepEqual(got.Records, want.Records) {
					t.Errorf("%+v: %d and %d receipts, %v %v", f, len(got.Records), len(want.Records), err, werr)
				}
				if i == 0 && random.IntN(10) == 0 {
					os.Remove(x.path)
				}
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			call(t, l)
		}
	})
	wg.Wait()
}

// TestIndexWithoutSpace checks that no call and no query fails if the index has no space.
func TestIndexWithoutSpace(t *testing.T) {
	ktest.Long(t)
	for name, set := range map[string]func(x *Index){
		"full":         func(x *Index) { x.pages = 8 },
		"no directory": func(x *Index) { x.path = filepath.Join(filepath.Dir(x.path), "none", "index.db") },
		"a directory in its place": func(x *Index) {
			do(t, os.MkdirAll(filepath.Join(x.path, "with", "something"), 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, ledger.Config{Dir: place(t)})
			varied(t, l, 100, 2)
			var log said
			x := indexed(t, l, &log)
			set(x)
			for range 3 {
				id := call(t, l)
				page, err := x.Find(context.Background(), receipts.Filter{ID: id})
				if err != nil || len(page.Records) != 1 {
					t.Fatalf("%d receipts, %v", len(page.Records), err)
				}
			}
			if !strings.Contains(log.String(), "reading the ledger instead") {
				t.Errorf("nothing said: %s", &log)
			}
			if name == "full" && !strings.Contains(log.String(), "no space") {
				t.Errorf("another reason than the one that was made: %s", &log)
			}
		})
	}
}

// TestSealFollowsNoLink checks that a seal does not follow a link and does not overwrite its target.
func TestSealFollowsNoLink(t *testing.T) {
	l := open(t, ledger.Config{Dir: place(t)})
	varied(t, l, 10, 1)
	x := indexed(t, l, &said{})
	_, err := x.Find(t.Context(), receipts.Filter{})
	do(t, err)
	other := filepath.Join(t.TempDir(), "other")
	do(t, os.WriteFile(other, []byte("kept"), 0o600))
	do(t, os.Symlink(other, x.path+sealSuffix))
	do(t, x.Close())
	if text, err := os.ReadFile(other); err != nil || string(text) != "kept" {
		t.Errorf("%q %v", text, err)
	}
	if st, err := os.Lstat(x.path + sealSuffix); err != nil || !st.Mode().IsRegular() {
		t.Errorf("%v %v", st, err)
	}
}

// TestIndexReadsWhatTheLedgerSays checks that a ledger line that changed after it was indexed is an error and not an
// answer.
func TestIndexReadsWhatTheLedgerSays(t *testing.T) {
	dir := place(t)
	l := open(t, ledger.Config{Dir: dir})
	id := call(t, l)
	x := indexed(t, l, &said{})
	find := func() error { _, err := x.Find(context.Background(), receipts.Filter{ID: id}); return err }
	do(t, find())
	data, err := os.ReadFile(first(dir))
	do(t, err)
	do(t, os.WriteFile(first(dir), bytes.Replace(data, []byte("system.echo"), []byte("system.date"), 1), 0o600))
	var bad *audit.Bad
	if err := find(); !errors.As(err, &bad) || bad.Entry != 2 {
		t.Errorf("%v, want entry 2", err)
	}
}

// TestScansAreOneAtATime checks that only one scan runs at a time, and none for a caller that has left.
func TestScansAreOneAtATime(t *testing.T) {
	l := open(t, ledger.Config{Dir: place(t)})
	id := call(t, l)
	x := indexed(t, l, &said{})
	x.scans <- struct{}{} // another scan
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := x.Scan(ctx, receipts.Filter{ID: id}); !errors.Is(err, context.Canceled) {
		t.Errorf("beside another one: %v", err)
	}
	<-x.scans
	for range 2 {
		if page, err := x.Scan(context.Background(), receipts.Filter{ID: id}); err != nil || len(page.Records) != 1 {
			t.Errorf("%d receipts, %v", len(page.Records), err)
		}
	}
}

// TestIndexIsFedInParts checks that if the first feeding is interrupted, it continues at the same position, even if a
// batch separates an intent from its outcome.
func TestIndexIsFedInParts(t *testing.T) {
	ktest.Long(t)
	dir := place(t)
	ids := grow(t, dir, 10_000)
	l := open(t, ledger.Config{Dir: dir})
	x := indexed(t, l, &said{})
	ctx := context.Background()
	if x.feedQuietly(ctx, func() bool { return true }); x.db != nil {
		t.Error("it is opened for nothing")
	}
	x.fed = ledger.Position{}
	seen := uint64(0)
	for range 2 {
		x.feedQuietly(ctx, func() bool { return false })
		if x.mark.at.Seq <= seen {
			t.Fatalf("stuck at entry %d", seen)
		}
		if seen = x.mark.at.Seq; x.whole {
			t.Fatal("whole too soon")
		}
	}
	page, err := x.findIndexed(ctx, receipts.Filter{Status: receipts.Open, Limit: 1})
	if err != nil || len(page.Records) != 0 || page.Head.Seq != 20_001 || !x.whole {
		t.Errorf("%+v %v", page, err)
	}
	for _, id := range []bailey.ReceiptID{ids[0], ids[4095], ids[9999]} {
		if page, err = x.findIndexed(ctx, receipts.Filter{ID: id, Limit: 1}); err != nil || len(page.Records) != 1 {
			t.Errorf("%s: %+v %v", id, page, err)
		}
	}
	if len(x.opened) != 0 {
		t.Errorf("%d receipts are thought open", len(x.opened))
	}
	now, later := l.Durable(), l.Durable()
	later.Bytes += behind + 1
	if x.isBehind(now) || !x.isBehind(later) {
		t.Error("what is behind is not known")
	}
}

// TestIndexHostileNames checks that names that callers choose are returned unchanged and find their receipts.
func TestIndexHostileNames(t *testing.T) {
	l := open(t, ledger.Config{Dir: place(t)})
	x := indexed(t, l, &said{})
	for _, name := range []string{"a\x00b", "a", "'; DROP TABLE receipt; --", "%", "é\u202e", strings.Repeat("x", 20_000), "\xff"} {
		in := intent()
		in.Capability, in.Agent = bailey.CapabilityID(name), name
		_, err := l.Open(context.Background(), in)
		do(t, err)
		name = strings.ToValidUTF8(name, "\ufffd") // as it is in JSON
		page, err := x.Find(context.Background(), receipts.Filter{Capability: bailey.CapabilityID(name), Agent: name})
		if err != nil || len(page.Records) != 1 || page.Records[0].Intent.Receipt != in.Receipt {
			t.Errorf("%.40q: %d receipts, %v", name, len(page.Records), err)
		}
	}
}

func TestUnknownStatus(t *testing.T) {
	l := open(t, ledger.Config{Dir: place(t)})
	_, err := indexed(t, l, &said{}).Find(context.Background(), receipts.Filter{Status: "denyed"})
	if !errors.Is(err, bailey.Invalid) || !strings.Contains(bailey.HintOf(err), "denied, pending") {
		t.Errorf("%v (%s)", err, bailey.HintOf(err))
	}
}

// TestPagesAreBounded checks that a page is limited in bytes, and that the following pages return the rest.
func TestPagesAreBounded(t *testing.T) {
	ktest.Long(t)
	l := open(t, ledger.Config{Dir: place(t)})
	x := indexed(t, l, &said{})
	const n = 150
	for range n {
		in := intent()
		in.Dir = strings.Repeat("d", 50<<10)
		_, err := l.Open(context.Background(), in)
		do(t, err)
	}
	for _, find := range []func(receipts.Filter) (receipts.Page, error){
		func(f receipts.Filter) (receipts.Page, error) { return x.findIndexed(context.Background(), f) }, func(f receipts.Filter) (receipts.Page, error) { return l.Find(context.Background(), f) },
	} {
		got, pages, f := 0, 0, receipts.Filter{Oldest: true, Limit: receipts.MaxLimit}
		for more := true; more; pages++ {
			page, err := find(f)
			do(t, err)
			got, more, f.After = got+len(page.Records), page.More, page.Records[len(page.Records)-1].Seq
		}
		if got != n || pages < 2 {
			t.Errorf("%d receipts on %d pages", got, pages)
		}
	}
}
