//go:build linux

package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ktest"
)

func TestTornTails(t *testing.T) {
	for name, tail := range map[string]string{
		"zeros":      strings.Repeat("\x00", 5000),
		"many zeros": strings.Repeat("\x00", 3<<20),
		"half":       `{"hash":"0123`,
		"a hole":     strings.Repeat("\x00", 4096) + "the rest of a line\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			l := open(t, Config{Dir: dir})
			id := call(t, l)
			do(t, l.Close())
			good := content(first(dir))
			do(t, os.WriteFile(first(dir), []byte(good+tail), 0o600))
			recovered(t, dir, []string{string(id)}, []string{string(id)})
			repairs(t, dir, 1)
			kept, err := os.ReadFile(fmt.Sprintf("%s/torn-4-%d", dir, len(good)))
			if err != nil || string(kept) != tail {
				t.Errorf("%d bytes kept, %v", len(kept), err)
			}
		})
	}
}

func TestDamage(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(lines []string) []string
		entry  string
	}{
		"byte changed":   {func(l []string) []string { l[2] = strings.Replace(l[2], "allow", "asked", 1); return l }, "entry 3"},
		"last changed":   {func(l []string) []string { l[4] = strings.Replace(l[4], "allow", "asked", 1); return l }, "entry 5"},
		"line deleted":   {func(l []string) []string { return append(l[:1:1], l[2:]...) }, "entry 2"},
		"lines swapped":  {func(l []string) []string { l[1], l[3] = l[3], l[1]; return l }, "entry 2"},
		"torn, appended": {func(l []string) []string { l[3] = l[3][:40]; return l }, "entry 4"},
		"rubbish behind": {func(l []string) []string { return append(l, "rubbish\nmore\n") }, "entry 6"},
		"a blank behind": {func(l []string) []string { return append(l, "\n") }, "entry 6"},
		"ends changed":   {func(l []string) []string { l[3], l[4] = "x"+l[3][1:], "x"+l[4][1:]; return l }, "entry 4"},
		"other genesis":  {func(l []string) []string { l[0] = strings.Replace(l[0], "castle", "palace", 1); return l }, "entry 1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			l := open(t, Config{Dir: dir, Host: "castle"})
			call(t, l)
			call(t, l)
			do(t, l.Close())
			split := strings.SplitAfter(content(first(dir)), "\n")
			do(t, os.WriteFile(first(dir), []byte(strings.Join(c.damage(split), "")), 0o600))
			refused(t, dir, "damaged", c.entry)
		})
	}
}

// TestOldIntents checks that receipts that an earlier gateway left open are closed once, regardless of their age.
func TestOldIntents(t *testing.T) {
	ktest.Long(t)
	dir := place(t)
	past := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	l := open(t, Config{Dir: dir, Now: func() time.Time { return past }})
	const calls = 2500 // more than one group
	for range calls {
		_, err := l.Open(context.Background(), intent())
		do(t, err)
	}
	call(t, l)
	do(t, l.Close())
	if r := verified(t, dir); r.Open != calls {
		t.Errorf("%+v", r)
	}
	for range 2 {
		do(t, open(t, Config{Dir: dir}).Close())
		if r := verified(t, dir); r.Open != 0 || r.Outcomes != calls+1 {
			t.Errorf("%+v", r)
		}
	}
}

// TestVerifyWaitsForTheLine checks that a line that is being written does not count as a torn tail.
func TestVerifyWaitsForTheLine(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	call(t, l)
	do(t, l.Close())
	whole := content(first(dir))
	for range 20 { // on a busy machine the rest may come too late
		do(t, os.Truncate(first(dir), int64(len(whole)-20)))
		wrote := make(chan error)
		go func() {
			time.Sleep(settle / 8)
			f, err := os.OpenFile(first(dir), os.O_WRONLY|os.O_APPEND, 0)
			if err == nil {
				_, err = f.WriteString(whole[len(whole)-20:])
				f.Close()
			}
			wrote <- err
		}()
		began := time.Now()
		r, err := Verify(dir)
		took := time.Since(began)
		do(t, err)
		do(t, <-wrote)
		switch {
		case r.OK && r.Entries == 3:
			return
		case took < settle:
			t.Fatalf("it waited %v: %+v", took, r)
		}
	}
	t.Error("it did not see the rest, each time")
}

// second begins a second segment after a closed ledger, like a writer that rotates.
func second(t *testing.T, dir string, change func(*audit.Start)) string {
	t.Helper()
	var s audit.State
	for e, err := range audit.Scan(strings.NewReader(content(first(dir))), audit.Head{}) {
		do(t, err)
		if bad := s.Add(e, false); bad != nil {
			t.Fatal(bad)
		}
	}
	start := newStart(s.Head, s.Tree, s.Pairs.Open())
	change(&start)
	data, err := json.Marshal(start)
	do(t, err)
	line, _, err := audit.Append(s.Head.Hash, audit.Entry{Seq: s.Head.Seq + 1, Time: time.Now(), Kind: audit.KindSegment, Data: data})
	do(t, err)
	name := filepath.Join(dir, "00000002.jsonl")
	do(t, os.WriteFile(name, line, 0o600))
	return name
}

// TestSecondSegment checks that a ledger of two segments continues in the second, with the chain, tree and open
// receipts of both.
func TestSecondSegment(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	call(t, l)
	_, err := l.Open(context.Background(), intent())
	do(t, err)
	do(t, l.Close())
	name := second(t, dir, func(*audit.Start) {})
	before := content(first(dir))
	l = open(t, Config{Dir: dir})
	call(t, l)
	do(t, l.Close())
	r := verified(t, dir)
	if r.Segments != 2 || r.Open != 0 || r.Intents != 3 || l.chain.tree.Root() != r.Root || content(first(dir)) != before {
		t.Errorf("%+v", r)
	}
	do(t, os.WriteFile(name, nil, 0o600))
	refused(t, dir, "damaged", "has no entry")

	dir = place(t)
	do(t, open(t, Config{Dir: dir}).Close())
	second(t, dir, func(s *audit.Start) { s.Open = append(s.Open, "r-9") })
	if r, err := Verify(dir); err != nil || r.OK || !strings.Contains(r.FirstBad.Detail, "open receipts") {
		t.Errorf("%+v %v", r.FirstBad, err)
	}
}

// TestNoCrashLeavesThatMuch checks that a tail longer than a group is not treated as torn and not copied. A tail must
// not be copied either if the disk has no space for it.
func TestNoCrashLeavesThatMuch(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	call(t, l)
	do(t, l.Close())
	st, err := os.Stat(first(dir))
	do(t, err)
	do(t, os.Truncate(first(dir), st.Size()+1<<40)) // sparse
	if _, err := New(Config{Dir: dir}); !errors.Is(err, bailey.Conflict) || !strings.Contains(err.Error(), "64 MiB") {
		t.Error(err)
	}
	do(t, os.Truncate(first(dir), st.Size()+1<<20))
	if _, err := New(Config{Dir: dir, Reserve: 1 << 60}); !errors.Is(err, bailey.Unavailable) {
		t.Error(err)
	}
	if torn, _ := filepath.Glob(dir + "/torn*"); len(torn) > 0 {
		t.Errorf("%v", torn)
	}
	open(t, Config{Dir: dir})
	verified(t, dir)
}
