//go:build linux

package ledger

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"bailey/audit"
	"bailey/internal/ktest"
)

// backwards records the entries that it is shown, and has enough after `most` segments.
type backwards struct {
	most     int
	now      []uint64
	segments [][]uint64 // entry numbers, the newest segment first
}

func (b *backwards) Read(e audit.Entry) { b.now = append(b.now, e.Seq) }

func (b *backwards) Enough() bool {
	b.segments, b.now = append(b.segments, b.now), nil
	return len(b.segments) == b.most
}

// TestBackward checks that a reader is shown each segment from its first entry to its last, the newest segment first,
// and no more when it has enough.
func TestBackward(t *testing.T) {
	dir := place(t)
	count := len(rotated(t, dir, 9))
	entries := verified(t, dir).Entries
	for most := range count + 1 {
		outside := &backwards{most: most}
		do(t, Backward(dir, outside))
		inside := &backwards{most: most}
		l := open(t, Config{Dir: dir, Read: inside.Read})
		if !inside.Enough() {
			do(t, l.Before(inside))
		}
		do(t, l.Close())
		for name, b := range map[string]*backwards{"from outside": outside, "from inside": inside} {
			next, want := entries, most
			if want == 0 {
				want = count // never enough
			}
			for _, s := range b.segments {
				for _, seq := range slices.Backward(s) {
					if seq != next {
						t.Fatalf("%s, %d segments: entry %d, want %d", name, most, seq, next)
					}
					next--
				}
			}
			if len(b.segments) != want || (want == count) != (next == 0) {
				t.Errorf("%s: %d segments of %d down to entry %d", name, len(b.segments), want, next+1)
			}
		}
	}
	if err := Backward(place(t), &backwards{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no ledger: %v", err)
	}
}

// TestBackwardDamage checks that the segments that are read are verified, and that the others are not.
func TestBackwardDamage(t *testing.T) {
	ktest.Long(t)
	flip := func(b []byte) []byte { return bytes.Replace(b, []byte("system.echo"), []byte("system.exec"), 1) }
	cut := func(b []byte) []byte { return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1] }
	torn := func(b []byte) []byte { return b[:len(b)-10] }
	for name, c := range map[string]struct {
		segment int // counted from the end
		change  func([]byte) []byte
		most    int // segments to read
		reason  audit.Reason
	}{
		"an entry of the last":          {0, flip, 0, audit.Chain},
		"an entry of one before":        {1, flip, 0, audit.Chain},
		"of one that is not read":       {2, flip, 2, ""},
		"of one that is":                {2, flip, 3, audit.Chain},
		"the end of one before":         {1, cut, 0, audit.Started},
		"a torn tail":                   {0, torn, 0, ""},
		"a torn tail of one before":     {2, torn, 0, audit.Torn},
		"another ledger's":              {1, func([]byte) []byte { return []byte(content(rotated(t, place(t), 9)[1])) }, 0, audit.Started},
		"the whole of the one before":   {1, func([]byte) []byte { return nil }, 0, audit.Started},
		"another's first line":          {1, func(b []byte) []byte { return append([]byte("{}\n"), b...) }, 0, audit.Started},
		"the first, which has no start": {-1, flip, 0, audit.Chain},
	} {
		dir := place(t)
		names := rotated(t, dir, 9)
		at := len(names) - 1 - c.segment
		if c.segment < 0 {
			at = 0
		}
		do(t, os.WriteFile(names[at], c.change([]byte(content(names[at]))), 0o600))
		err := Backward(dir, &backwards{most: c.most})
		var bad *audit.Bad
		switch {
		case c.reason == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.reason != "" && (!errors.As(err, &bad) || bad.Reason != c.reason || bad.Segment < at+1 || bad.Segment > at+2):
			t.Errorf("%s: %v", name, err)
		}
		if c.segment == 0 {
			continue // opening reads this segment
		}
		l, err := New(Config{Dir: dir})
		if err != nil && c.reason != "" {
			continue // the links show it before any entry is shown
		}
		do(t, err)
		if err := l.Before(&backwards{most: max(c.most-1, 0)}); (err == nil) != (c.reason == "") {
			t.Errorf("%s, of an open ledger: %v", name, err)
		}
		do(t, l.Close())
	}
}

// TestStand checks that Stand finds the same faults as a verification in the segments that it reads, and reports how
// much it read.
func TestStand(t *testing.T) {
	dir := place(t)
	rotated(t, dir, 9)
	l := open(t, Config{Dir: dir, Segment: tiny})
	_, err := l.Open(context.Background(), intent())
	do(t, err)
	r, err := l.Verify()
	do(t, err)
	s, err := l.Stand()
	if err != nil || s.Bad != nil || s.Segments != r.Segments || s.Entries != r.Entries || s.Open != 1 || s.Head != r.Head || s.Verified == 0 || s.Verified >= s.Entries {
		t.Errorf("%+v %v, want %+v", s, err, r)
	}
	names := segmentsOf(t, dir)
	last, middle := names[len(names)-1], names[1]
	for name, c := range map[string]struct {
		file   string
		change func(string) string
		reason audit.Reason
	}{
		"what it cannot be parsed": {middle, func(s string) string { return strings.Replace(s, "system.echo", "system.exec", 1) }, ""},
		"how that ends":            {middle, func(s string) string { return s[:len(s)-200] }, audit.Started},
		"the last":                 {last, func(s string) string { return strings.Replace(s, "system.echo", "system.exec", 1) }, audit.Chain},
		"its tail":                 {last, func(s string) string { return s[:strings.LastIndexByte(s[:len(s)-1], '\n')+1] }, audit.Truncated},
		"half a line of it":        {last, func(s string) string { return s[:len(s)-10] }, audit.Torn},
		"all but ten bytes":        {last, func(s string) string { return s[:10] }, audit.Started},
	} {
		was := content(c.file)
		do(t, os.WriteFile(c.file, []byte(c.change(was)), 0o600))
		s, err := l.Stand()
		if err != nil || s.Entries != r.Entries || (s.Bad == nil) != (c.reason == "") || s.Bad != nil && s.Bad.Reason != c.reason {
			t.Errorf("%s: %+v %v %v", name, s, s.Bad, err)
		}
		do(t, os.WriteFile(c.file, []byte(was), 0o600))
	}
	do(t, os.Rename(last, last+".away"))
	if _, err := l.Stand(); err == nil || !strings.Contains(err.Error(), "has lost "+segmentFile(len(names))) {
		t.Errorf("without its last segment: %v", err)
	}
	do(t, os.Rename(last+".away", last))
}

// TestStandUnderLoad checks that Stand finds no fault while callers append and segments begin, and that a new segment
// is signalled.
func TestStandUnderLoad(t *testing.T) {
	l := open(t, Config{Dir: place(t), Segment: 8000})
	select {
	case <-l.Rotated():
		t.Error("a segment began before anything was written")
	default:
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 8 {
				call(t, l)
			}
		})
	}
	for range 20 {
		if s, err := l.Stand(); err != nil || s.Bad != nil {
			t.Errorf("%v %v", s.Bad, err)
		}
	}
	wg.Wait()
	<-l.Rotated()
	select {
	case <-l.Rotated():
		t.Error("heard twice")
	default:
	}
}
