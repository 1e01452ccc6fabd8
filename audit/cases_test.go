package audit

import (
	"bytes"
	"strings"
	"testing"
)

// Cases from docs/threat-model.md: the first line of each names the attack and the required result. TestThirtyCases
// parses it.

// lines returns the lines of a segment of the book, with newlines.
func (b *book) lines(segment int) [][]byte {
	return bytes.SplitAfter(bytes.TrimSuffix(b.segments[segment], nil), []byte("\n"))
}

// Case 12: a line is removed; verification must name the missing entry.
func TestLineDeleted(t *testing.T) {
	for n := range 6 {
		b := day(t, 1)
		l := b.lines(0)
		b.segments[0] = bytes.Join(append(l[:n:n], l[n+1:]...), nil)
		r, err := Check{}.Verify(b.readers()...)
		do(t, err)
		if r.OK || r.FirstBad.Entry != uint64(n+1) || r.FirstBad.Segment == 0 {
			t.Errorf("without entry %d: %v", n+1, r.FirstBad)
		}
	}
}

// Case 13: two lines are swapped; verification must name the first of them.
func TestLinesSwapped(t *testing.T) {
	for i := range 5 {
		for j := i + 1; j < 6; j++ {
			b := day(t, 1)
			l := b.lines(0)
			l[i], l[j] = l[j], l[i]
			b.segments[0] = bytes.Join(l, nil)
			if r := b.verify(Check{}, Chain); r.FirstBad.Entry != uint64(i+1) {
				t.Errorf("entries %d and %d: %v", i+1, j+1, r.FirstBad)
			}
		}
	}
}

// forged returns day as an attacker with write access would rebuild it: with another entry at position `at` and with
// all later hashes recomputed.
func forged(t *testing.T, at int, kind, data string) *book {
	whole, b := day(t, 1), newBook(t, 1)
	n := 1
	for segment := range whole.segments {
		if segment > 0 {
			b.rotate()
		}
		for e, err := range Scan(bytes.NewReader(whole.segments[segment]), startOf(t, whole, segment)) {
			do(t, err)
			if n++; n == at {
				b.add(kind, data)
			}
			if e.Kind != KindGenesis && e.Kind != KindSegment {
				b.add(e.Kind, string(e.Data))
			}
		}
	}
	return b
}

func startOf(t *testing.T, b *book, segment int) Head {
	if segment == 0 {
		return Head{}
	}
	line, _, _ := bytes.Cut(b.segments[segment], []byte("\n"))
	s, err := ReadStart(append(line, '\n'))
	do(t, err)
	return s.After()
}

// Case 14: an entry is inserted and the chain recomputed; the chain is valid, but a kept checkpoint reports fork.
func TestEntryInserted(t *testing.T) {
	whole := day(t, 1)
	size := len(whole.roots) - 1
	for at := 2; at <= 7; at++ {
		b := forged(t, at, "note", `{"forged":true}`)
		b.verify(Check{}, "")
		b.verify(Check{Trust: whole.trust(1), Seen: [][]byte{whole.sign(size, 1)}}, Forked)
		b.verify(Check{Trust: whole.trust(1), Newest: b.sign(len(b.roots)-1, 9), Seen: [][]byte{whole.sign(size, 1)}}, Unsigned)
	}
}

// Case 17: an attacker without the key rewrites the whole log; only a kept checkpoint counts, and it reports fork.
func TestRewrittenWithoutTheKey(t *testing.T) {
	whole := day(t, 1)
	kept := whole.sign(len(whole.roots)-1, 1)
	b := newBook(t, 1)
	b.change(0, 9)
	for range 20 {
		b.add("note", "{}")
	}
	b.verify(Check{}, "")
	b.verify(Check{Trust: whole.trust(1), Newest: b.sign(21, 9)}, Unsigned)
	b.verify(Check{Trust: whole.trust(1), Seen: [][]byte{kept}}, Forked)
}

// Case 18: an attacker with the key rewrites the whole log; no witness cosigns it, a missing cosignature is reported.
func TestRewrittenWithTheKey(t *testing.T) {
	whole := day(t, 1)
	size := len(whole.roots) - 1
	trust := Trust{whole.trust(1).Keys, []Key{whole.witness(1)}, 1}
	whole.verify(Check{Trust: trust, Seen: [][]byte{whole.cosign(whole.sign(size, 1), 1)}}, "")
	b := forged(t, 3, "note", "{}")
	newest := b.sign(len(b.roots)-1, 1)
	b.verify(Check{Trust: whole.trust(1), Newest: newest}, "") // valid without a witness
	b.verify(Check{Trust: trust, Newest: newest}, Unwitnessed)
	proof := consistency(t, b.leaves(), uint64(len(b.roots)-1), uint64(size))
	if err := b.roots[len(b.roots)-1].Extends(whole.roots[size], proof); err == nil || !strings.Contains(err.Error(), string(Forked)) {
		t.Errorf("the witness would cosign another tree than before: %v", err)
	}
}

// Case 19: the log shows two readers different ledgers of one size, both signed; a witness must cosign only one.
func TestSplitView(t *testing.T) {
	one, two := day(t, 1), day(t, 1)
	one.add("note", `{"for":"one"}`)
	two.add("note", `{"for":"two"}`)
	size := len(one.roots) - 1
	trust := Trust{one.trust(1).Keys, []Key{one.witness(1)}, 1}
	first := one.cosign(one.sign(size, 1), 1)
	if err := two.roots[size].Extends(one.roots[size], nil); err == nil {
		t.Error("a witness would cosign a second ledger of that size")
	}
	one.verify(Check{Trust: trust, Seen: [][]byte{first}}, "")
	two.verify(Check{Trust: trust, Seen: [][]byte{first}}, Forked)
	two.verify(Check{Trust: trust, Newest: two.sign(size, 1)}, Unwitnessed)
}

// Case 20: the genesis entry is replaced, or the whole log by that of another host; a checkpoint reports replaced.
func TestGenesisReplaced(t *testing.T) {
	whole := day(t, 1)
	kept := whole.sign(4, 1)
	other := day(t, 2)
	other.verify(Check{}, "")
	other.verify(Check{Trust: whole.trust(1), Seen: [][]byte{kept}}, Replaced)
	swapped := day(t, 1)
	swapped.segments[0] = append(bytes.Clone(other.lines(0)[0]), bytes.Join(swapped.lines(0)[1:], nil)...)
	if r := swapped.verify(Check{}, Chain); r.FirstBad.Entry != 2 {
		t.Errorf("%v", r.FirstBad)
	}
}

// Case 21: a line has the same meaning in another encoding; there is one encoding, and any other must be refused.
func TestOneEncoding(t *testing.T) {
	const good = `{"seq":2,"time":"2026-11-03T09:00:01Z","kind":"intent","data":{"receipt":"r-1","agent":"local"}}`
	b := newBook(t, 1)
	genesis := bytes.Clone(b.segments[0])
	write := func(raw string) []byte {
		h := hashEntry(b.head.Hash, []byte(raw)) // an attacker would recompute the hash too
		return append(bytes.Clone(genesis), frameHash+h.String()+frameEntry+raw+frameEnd...)
	}
	if r, err := Verify(bytes.NewReader(write(good))); err != nil || !r.OK {
		t.Fatalf("%v %v", r.FirstBad, err)
	}
	for name, change := range map[string][2]string{
		"unknown key":              {`,"kind"`, `,"more":1,"kind"`},
		"unknown key at the end":   {`"}}`, `"},"more":1}`},
		"duplicate key":            {`"seq":2,`, `"seq":2,"seq":2,`},
		"duplicate key in data":    {`"agent":"local"`, `"agent":"a","agent":"local"`},
		"escaped duplicate":        {`"agent":"local"`, `"agent":"a","\u0061gent":"local"`},
		"case variant":             {`"seq"`, `"Seq"`},
		"case variant of receipt":  {`"agent":"local"`, `"Receipt":"r-2"`},
		"reordered":                {`"seq":2,"time":"2026-11-03T09:00:01Z"`, `"time":"2026-11-03T09:00:01Z","seq":2`},
		"space after a colon":      {`"seq":2`, `"seq": 2`},
		"space in data":            {`"agent":"local"`, `"agent": "local"`},
		"number in another form":   {`"seq":2`, `"seq":2.0`},
		"time in another form":     {`09:00:01Z`, `09:00:01.0Z`},
		"time in another zone":     {`09:00:01Z`, `10:00:01+01:00`},
		"kind with an escape":      {`intent`, `inten\u0074`},
		"a second value after all": {`"}}`, `"}}{}`},
	} {
		r, err := Verify(bytes.NewReader(write(strings.Replace(good, change[0], change[1], 1))))
		do(t, err)
		if r.OK || r.FirstBad.Entry != 2 {
			t.Errorf("%s: %v", name, r.FirstBad)
		}
	}
}

// Case 27: an old checkpoint is shown as the newest; if a later one was seen, verification reports rollback.
func TestOldCheckpointReplayed(t *testing.T) {
	b := day(t, 1)
	size := len(b.roots) - 1
	for old := 2; old < size; old++ {
		b.verify(Check{Trust: b.trust(1), Newest: b.sign(old, 1)}, "")
		b.verify(Check{Trust: b.trust(1), Newest: b.sign(old, 1), Seen: [][]byte{b.sign(size, 1)}}, Rollback)
	}
}
