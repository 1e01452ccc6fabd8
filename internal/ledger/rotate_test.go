//go:build linux

package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"bailey"
	"bailey/audit"
	"bailey/internal/ktest"
	"bailey/internal/receipts"

	"golang.org/x/sys/unix"
)

const tiny = 2000 // size of a segment in bytes: two calls fill it

// segmentsOf returns the names of a ledger's segments.
func segmentsOf(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(dir + "/*.jsonl")
	do(t, err)
	slices.Sort(names)
	return names
}

// rotated makes a closed ledger of several segments.
func rotated(t testing.TB, dir string, calls int) []string {
	t.Helper()
	l := open(t, Config{Dir: dir, Host: "castle", Segment: tiny})
	for range calls {
		call(t, l)
	}
	do(t, l.Close())
	return segmentsOf(t, dir)
}

func TestRotation(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir, Segment: tiny})
	var held func(bailey.Outcome) error
	var ids []bailey.ReceiptID
	for n := range 20 {
		ids = append(ids, call(t, l))
		if n == 3 { // open over many segments
			seal, err := l.Open(context.Background(), intent())
			do(t, err)
			held = seal
		}
	}
	do(t, held(bailey.Outcome{Status: bailey.OK}))
	if r, err := l.Verify(); err != nil || !r.OK || r.Segments < 5 || r.Open != 0 || r.Intents != 21 {
		t.Fatalf("%+v %v", r, err)
	}
	for _, id := range ids {
		if list, err := l.Receipts(receipts.Filter{ID: id}); err != nil || len(list) != 1 || list[0].Outcome.Status != bailey.OK {
			t.Fatalf("%s: %v %v", id, list, err)
		}
	}
	for range 2 {
		do(t, l.Close())
		l = open(t, Config{Dir: dir, Segment: tiny})
		call(t, l)
	}
	r := verified(t, dir)
	if r.Open != 0 || r.Intents != 23 || l.chain.tree.Root() != r.Root {
		t.Errorf("%+v", r)
	}
	for _, name := range segmentsOf(t, dir) {
		st, err := os.Stat(name)
		if err != nil || st.Mode() != 0o600 || st.Size() > tiny+2000 {
			t.Errorf("%s: %v %v", name, st, err)
		}
	}
}

// TestOpenAcrossSegments checks that receipts that are open when a ledger is closed are closed in its last segment,
// even if another segment opened them.
func TestOpenAcrossSegments(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir, Segment: tiny})
	for range 9 {
		_, err := l.Open(context.Background(), intent())
		do(t, err)
		call(t, l)
	}
	open := segmentsOf(t, dir)
	if len(open) < 3 || blocksOf(t, open[len(open)-1]) < 9*slot || blocksOf(t, open[0]) > 64<<10 {
		t.Errorf("%d segments; the last takes %d bytes of the disk, the first %d", len(open), blocksOf(t, open[len(open)-1]), blocksOf(t, open[0]))
	}
	do(t, l.Close())
	if r := verified(t, dir); r.Open != 9 {
		t.Errorf("%+v", r)
	}
	rotated(t, dir, 0)
	if r := verified(t, dir); r.Open != 0 || r.Outcomes != 18 {
		t.Errorf("%+v", r)
	}
}

// blocksOf returns the size of a file on the disk, in bytes.
func blocksOf(t *testing.T, name string) int64 {
	var st unix.Stat_t
	do(t, unix.Stat(name, &st))
	return st.Blocks * 512
}

// TestPlanInEachSegment checks that each segment that names a plan contains its text once.
func TestPlanInEachSegment(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir, Segment: tiny})
	const text = "mount / read-only\n"
	for range 12 {
		seal, err := l.Open(context.Background(), intent())
		do(t, err)
		do(t, seal(bailey.Outcome{Status: bailey.OK, Cage: &bailey.Cage{PlanDigest: digestOf(text), Plan: text}}))
	}
	do(t, l.Close())
	if r := verified(t, dir); r.Plans.Recomputed != 1 || r.Segments < 4 {
		t.Errorf("%+v", r)
	}
	for _, name := range segmentsOf(t, dir) {
		plans, named := strings.Count(content(name), `"kind":"plan"`), strings.Contains(content(name), `"planDigest"`)
		if plans > 1 || named != (plans == 1) {
			t.Errorf("%s: %d plans, named %v", name, plans, named)
		}
	}
}

// TestNoSpaceForASegment checks that if a new segment cannot be made, no call is refused and the old segment continues.
func TestNoSpaceForASegment(t *testing.T) {
	for name, fail := range map[string]func(*faulty){
		"no space reserved": func(f *faulty) { f.reserve = unix.ENOSPC },
		"write":             func(f *faulty) { f.write = unix.EIO },
		"short write":       func(f *faulty) { f.write, f.short = errSilent, 10 },
		"sync":              func(f *faulty) { f.sync = unix.EIO },
	} {
		t.Run(name, func(t *testing.T) {
			dir, first := place(t), true
			var said bytes.Buffer
			failing := true
			l := open(t, Config{Dir: dir, Segment: tiny, Log: logger(&said), Wrap: func(d Disk) Disk {
				f := &faulty{Disk: d}
				if !first && failing {
					fail(f)
				}
				first = false
				return f
			}})
			for range 12 {
				call(t, l)
			}
			if r := verified(t, dir); r.Segments != 1 || r.Intents != 12 || !strings.Contains(said.String(), "cannot start a new segment yet") {
				t.Errorf("%+v, said %s", r, &said)
			}
			if _, err := os.Stat(filepath.Join(dir, segmentTemp)); err == nil {
				t.Error("the segment that was not begun is left")
			}
			failing = false
			for range 6 {
				call(t, l)
			}
			if r := verified(t, dir); r.Segments < 2 || r.Intents != 18 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestSegmentsWait checks that no call is refused either if the name of the new segment is taken, or if more calls are
// open than a segment can carry.
func TestSegmentsWait(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir, Segment: tiny})
	squatter := filepath.Join(dir, segmentFile(2))
	do(t, os.Mkdir(squatter, 0o700))
	for range 6 {
		call(t, l)
	}
	do(t, os.Remove(squatter))
	if r := verified(t, dir); r.Segments != 1 || r.Intents != 6 {
		t.Errorf("%+v", r)
	}
	dir = place(t)
	l = open(t, Config{Dir: dir, Segment: tiny})
	var group []*request
	for range audit.MaxCarried + 1 {
		in := intent()
		r, err := newRequest(audit.KindIntent, []byte(`{"receipt":"`+string(in.Receipt)+`"}`))
		do(t, err)
		r.receipt = in.Receipt
		group = append(group, r)
	}
	do(t, l.writeRequests(group)) // the writer is idle
	call(t, l)
	if r := verified(t, dir); r.Segments != 1 || r.Open != audit.MaxCarried+1 {
		t.Errorf("%+v", r)
	}
	do(t, l.Close())
	rotated(t, dir, 2)
	if r := verified(t, dir); r.Segments < 2 || r.Open != 0 {
		t.Errorf("%+v", r)
	}
}

// Case 25: verification reads while callers append and segments begin; it must find the durable entries only.
func TestRotationUnderLoad(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir, Segment: 8000})
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 8 {
				call(t, l)
			}
		})
	}
	for range 20 {
		if r, err := l.Verify(); err != nil || !r.OK {
			t.Fatalf("%v %v", r.FirstBad, err)
		}
		if _, err := l.Receipts(receipts.Filter{}); err != nil {
			t.Fatal(err)
		}
		verified(t, dir)
	}
	wg.Wait()
	if r := verified(t, dir); r.Intents != 256 || r.Open != 0 || r.Segments < 3 {
		t.Errorf("%+v", r)
	}
}

// Case 23: a segment is missing, duplicated, in another's place or from another ledger; opening must refuse it.
func TestForeignSegments(t *testing.T) {
	ktest.Long(t)
	foreign := place(t)
	other := rotated(t, foreign, 20)
	for name, c := range map[string]struct {
		damage func(s []string) error
		says   string
	}{
		"missing first":     {func(s []string) error { return os.Remove(s[0]) }, "00000002.jsonl but not 00000001.jsonl"},
		"missing within":    {func(s []string) error { return os.Remove(s[2]) }, "00000004.jsonl but not 00000003.jsonl"},
		"missing, numbered": {func(s []string) error { return shift(s, 2) }, "segment 3"},
		"repeated":          {func(s []string) error { return put(s[3], content(s[2])) }, "segment 4"},
		"repeated at last": {func(s []string) error {
			return put(filepath.Dir(s[0])+"/"+segmentFile(len(s)+1), content(s[len(s)-1]))
		}, "segment"},
		"reordered": {func(s []string) error {
			a, b := content(s[1]), content(s[2])
			return errors.Join(put(s[1], b), put(s[2], a))
		}, "segment 2"},
		"foreign first":      {func(s []string) error { return put(s[0], content(other[0])) }, "segment 2"},
		"foreign within":     {func(s []string) error { return put(s[1], content(other[1])) }, "segment 2"},
		"foreign last":       {func(s []string) error { return put(s[len(s)-1], content(other[len(s)-1])) }, fmt.Sprintf("segment %d", len(other))},
		"emptied":            {func(s []string) error { return put(s[1], "") }, "segment 2"},
		"last emptied":       {func(s []string) error { return put(s[len(s)-1], "") }, fmt.Sprintf("segment %d", len(other))},
		"cut within":         {func(s []string) error { return put(s[1], content(s[1])[:900]) }, "segment 2"},
		"one huge line":      {func(s []string) error { return put(s[1], strings.Repeat("x", 3<<20)) }, "segment 2"},
		"last begins no how": {func(s []string) error { return put(s[len(s)-1], content(s[0])) }, fmt.Sprintf("segment %d", len(other))},
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			names := rotated(t, dir, 20)
			do(t, c.damage(names))
			refused(t, dir, c.says)
		})
	}
}

func put(name, text string) error { return os.WriteFile(name, []byte(text), 0o600) }

// shift removes segment n and renumbers those after it.
func shift(names []string, n int) error {
	for ; n+1 < len(names); n++ {
		if err := os.Rename(names[n+1], names[n]); err != nil {
			return err
		}
	}
	return nil
}

// childRotates dies in the third rotation, at the step that role names.
func childRotates(dir, role string) error {
	segments := 0
	l, err := New(Config{Dir: dir, Segment: tiny, Wrap: func(d Disk) Disk {
		segments++
		return &rotating{Disk: d, at: role, number: segments, last: func() int { return segments }}
	}})
	if err != nil {
		return err
	}
	for {
		in := intent()
		seal, err := l.Open(context.Background(), in)
		if err != nil {
			return err
		}
		fmt.Printf("intent %s\n", in.Receipt)
		if segments == 3 {
			continue // the third rotation carries open receipts
		}
		if err := seal(bailey.Outcome{Status: bailey.OK}); err != nil {
			return err
		}
		fmt.Printf("outcome %s\n", in.Receipt)
	}
}

// rotating kills its own process while the fourth segment is made.
type rotating struct {
	Disk
	at     string
	number int
	last   func() int
}

func (r *rotating) WriteAt(p []byte, off int64) (int, error) {
	if r.number == 4 && r.at == "rotate-write" {
		r.Disk.WriteAt(p[:len(p)/2], off)
		die()
	}
	return r.Disk.WriteAt(p, off)
}

func (r *rotating) Sync() error {
	if r.number == 4 && r.at == "rotate-sync" {
		die()
	}
	err := r.Disk.Sync()
	if r.number == 4 && r.at == "rotate-name" {
		die()
	}
	return err
}

func (r *rotating) Truncate(size int64) error { // of the old segment, after the new one has its name
	if r.number == 3 && r.last() == 4 && r.at == "rotate-named" {
		die()
	}
	return r.Disk.Truncate(size)
}

// TestKilledInsideRotation checks that a crash at any step of a rotation leaves the old segment as the last one, or
// both complete.
func TestKilledInsideRotation(t *testing.T) {
	for role, segments := range map[string]int{"rotate-write": 3, "rotate-sync": 3, "rotate-name": 3, "rotate-named": 4} {
		t.Run(role, func(t *testing.T) {
			dir := place(t)
			intents, outcomes := killed(t, role, dir, 0)
			r := verified(t, dir)
			if r.Segments != segments || r.Intents != len(intents) || r.Outcomes != len(outcomes) || r.Open == 0 {
				t.Errorf("%+v, %d intents and %d outcomes were durable", r, len(intents), len(outcomes))
			}
			rotated(t, dir, 4)
			if r := verified(t, dir); r.Open != 0 || r.Intents != len(intents)+4 || r.Segments <= segments {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestOpeningReadsTheLastSegment checks that opening reads only the ends of the segments before the last, regardless of
// their size.
func TestOpeningReadsTheLastSegment(t *testing.T) {
	dir := place(t)
	names := rotated(t, dir, 20)
	text := content(names[1])
	middle := strings.Index(text, `"allow"`)
	do(t, put(names[1], text[:middle]+`"asked"`+text[middle+7:]))
	do(t, open(t, Config{Dir: dir}).Close())
	if r, err := Verify(dir); err != nil || r.OK || r.FirstBad.Segment != 2 {
		t.Errorf("%+v %v", r.FirstBad, err)
	}
}
