package audit

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"bailey"
)

// day returns a ledger of two segments with calls, one of them open across both, and a first key.
func day(t testing.TB, origin byte) *book {
	b := newBook(t, origin)
	b.change(0, 1)
	b.call("r-1")
	b.add(KindIntent, `{"receipt":"r-open"}`)
	b.rotate()
	b.call("r-2")
	b.add(KindOutcome, `{"receipt":"r-open","outcome":"interrupted"}`)
	return b
}

func TestSignedLedger(t *testing.T) {
	b := day(t, 1)
	size := len(b.roots) - 1
	newest := b.cosign(b.cosign(b.sign(size, 1), 1), 2)
	for seen := 2; seen <= size; seen++ {
		c := Check{Trust: Trust{b.trust(1).Keys, []Key{b.witness(1), b.witness(2)}, 2}, Newest: newest, Seen: [][]byte{b.cosign(b.cosign(b.sign(seen, 1), 1), 2)}}
		r := b.verify(c, "")
		if len(r.Held) != 2 || r.Held[0].Size != uint64(size) || len(r.Held[0].Cosignatures) != 2 || r.Root != b.tree.Root() || r.Held[1].Keys[0] != b.key(1) {
			t.Fatalf("%+v", r)
		}
		if at := r.Held[0].Cosignatures[1]; at.Witness != "witness.example/w2" || !at.Time.Equal(time.Unix(1002, 0)) {
			t.Errorf("%+v", at)
		}
	}
	r := b.verify(Check{}, "")
	if said := strings.Join(r.LeavesOpen(), "\n"); !strings.Contains(said, "no signature covers the entries from 1 on") || !strings.Contains(said, "no witness") {
		t.Errorf("unsigned: %s", said)
	}
	r = b.verify(Check{Trust: b.trust(1), Seen: [][]byte{b.cosign(b.sign(4, 1), 1)}}, "")
	if out, err := json.Marshal(r.Held); err != nil || !strings.HasPrefix(string(out), `[{"origin":"bailey/castle/00000000000000000000000000000001","size":4,"root":"`) ||
		!strings.Contains(string(out), `"keys":["bailey/castle/00000000000000000000000000000001+b6945d8f+A`) {
		t.Errorf("%s, %v", out, err)
	}
	if said := strings.Join(r.LeavesOpen(), "\n"); !strings.Contains(said, "no signature covers the entries from 5 on") || len(r.Proves()) != 2 {
		t.Errorf("signed to 4: %s %q", said, r.Proves())
	}
}

// TestAgainstACheckpoint checks that each fault that the chain alone does not show has its own reason.
func TestAgainstACheckpoint(t *testing.T) {
	whole := day(t, 1)
	size := len(whole.roots) - 1
	kept := whole.sign(size, 1)
	trust := whole.trust(1)

	cut := day(t, 1)
	last := len(cut.segments) - 1
	cut.segments[last] = cut.segments[last][:bytes.LastIndexByte(cut.segments[last][:len(cut.segments[last])-1], '\n')+1]
	r := cut.verify(Check{Trust: trust, Seen: [][]byte{kept}}, Truncated)
	if r.FirstBad.Entry != uint64(size) {
		t.Errorf("cut: %v", r.FirstBad)
	}
	cut.verify(Check{}, "") // the chain alone does not show it
	cut.verify(Check{Trust: trust, Newest: kept}, Truncated)
	cut.verify(Check{Trust: trust, Newest: whole.sign(size-2, 1), Seen: [][]byte{kept}}, Rollback)
	cut.segments[last] = append(cut.segments[last], "half a li"...)
	cut.verify(Check{Trust: trust, Seen: [][]byte{kept}}, Truncated)
	cut.verify(Check{Trust: trust, Seen: [][]byte{whole.sign(3, 1)}}, Torn)

	// an old checkpoint is replayed
	whole.verify(Check{Trust: trust, Newest: whole.sign(size-1, 1), Seen: [][]byte{kept}}, Rollback)

	fork := newBook(t, 1)
	fork.change(0, 1)
	fork.call("r-other")
	for range size {
		fork.add("x", "{}")
	}
	r = fork.verify(Check{Trust: trust, Seen: [][]byte{kept}}, Forked)
	if r.FirstBad.Entry != 0 || r.FirstBad.Within != uint64(size) {
		t.Errorf("fork: %v", r.FirstBad)
	}
	fork.verify(Check{Trust: trust, Seen: [][]byte{whole.sign(2, 1)}}, "") // up to this entry both are equal

	other := day(t, 2)
	other.verify(Check{Trust: Trust{Keys: []Key{whole.key(1), other.key(1)}}, Seen: [][]byte{kept}}, Replaced)
	gone := &book{t: t}
	gone.verify(Check{Trust: trust, Seen: [][]byte{kept}}, Truncated)
	gone.verify(Check{}, Empty)

	damaged := day(t, 1)
	damaged.segments[1] = bytes.Replace(damaged.segments[1], []byte("r-2"), []byte("r-9"), 1)
	damaged.verify(Check{Trust: trust, Seen: [][]byte{kept}}, Chain) // the undamaged part equals the signed one
}

func TestUnsignedCheckpoints(t *testing.T) {
	b := day(t, 1)
	kept := b.sign(6, 1)
	for name, c := range map[string]Check{
		"no key":                {Seen: [][]byte{kept}},
		"another key":           {Trust: b.trust(2), Seen: [][]byte{kept}},
		"a witness's":           {Trust: Trust{Witnesses: []Key{b.witness(1)}}, Seen: [][]byte{b.cosign(kept, 1)}},
		"a witness as log":      {Trust: Trust{Keys: []Key{b.witness(1)}}, Seen: [][]byte{b.cosign(kept, 1)}},
		"nothing":               {Trust: b.trust(1), Seen: [][]byte{[]byte{}}},
		"no signature":          {Trust: b.trust(1), Seen: [][]byte{[]byte(b.roots[6].Text() + "\n")}},
		"the text":              {Trust: b.trust(1), Seen: [][]byte{[]byte(b.roots[6].Text())}},
		"too long":              {Trust: b.trust(1), Seen: [][]byte{append(kept, bytes.Repeat([]byte("— x AAAAAAA=\n"), MaxNote/15)...)}},
		"another key by then":   {Trust: Trust{Keys: []Key{b.key(1), b.key(2)}}, Seen: [][]byte{b.sign(6, 2)}},
		"a wrong cosignature":   {Trust: Trust{Keys: b.trust(1).Keys, Witnesses: []Key{b.witness(1)}}, Seen: [][]byte{bytes.Replace(b.cosign(kept, 1), []byte("AAAAAA"), []byte("AAAAAB"), 1)}},
		"the same key twice":    {Trust: b.trust(1, 1), Seen: [][]byte{append(kept, kept[bytes.LastIndex(kept, []byte("\n—"))+1:]...)}},
		"a witness in its name": {Trust: b.trust(1), Seen: [][]byte{signAs(t, b, 6)}},
		"another log's name":    {Trust: b.trust(1), Seen: [][]byte{signFor(t, day(t, 2), b, 1)}},
	} {
		t.Run(name, func(t *testing.T) { b.t = t; b.verify(c, Unsigned) })
	}
	b.t = t
	b.verify(Check{Trust: Trust{b.trust(1).Keys, []Key{b.witness(1)}, 1}, Seen: [][]byte{kept}}, Unwitnessed)
	b.verify(Check{Trust: Trust{b.trust(1).Keys, []Key{b.witness(1)}, 1}}, Unwitnessed)
	b.verify(Check{Trust: Trust{b.trust(1).Keys, []Key{b.witness(1), b.witness(2)}, 2}, Seen: [][]byte{b.cosign(kept, 2)}}, Unwitnessed)
	twin, err := WitnessKey("witness.example/twin", private(101).Public().(ed25519.PublicKey))
	do(t, err)
	by, err := newCosigner(twin.Name(), private(101), func() time.Time { return time.Unix(7, 0) })
	do(t, err)
	two, err := cosignNote(b.cosign(kept, 1), by)
	do(t, err)
	b.verify(Check{Trust: Trust{b.trust(1).Keys, []Key{b.witness(1), twin}, 2}, Seen: [][]byte{two}}, Unwitnessed)
}

// signAs returns a checkpoint that only a witness signed, under the log's name.
func signAs(t *testing.T, b *book, size int) []byte {
	by, err := newCosigner(b.name, private(1), func() time.Time { return time.Unix(5, 0) })
	do(t, err)
	out, err := note.Sign(&note.Note{Text: b.roots[size].Text()}, by)
	do(t, err)
	return out
}

// signFor returns a checkpoint of b that the log other signed in its own name.
func signFor(t *testing.T, other, b *book, size int) []byte {
	by, err := newSigner(other.name, private(1))
	do(t, err)
	out, err := note.Sign(&note.Note{Text: b.roots[size].Text()}, by)
	do(t, err)
	return out
}

// TestEveryBitOfACheckpoint checks that a signed checkpoint is refused if any bit changes, including the bits of its
// signatures.
func TestEveryBitOfACheckpoint(t *testing.T) {
	b := day(t, 1)
	signed := b.cosign(b.sign(6, 1), 1)
	trust := Trust{b.trust(1).Keys, []Key{b.witness(1)}, 1}
	if _, err := trust.Open(signed); err != nil {
		t.Fatal(err)
	}
	for i := range signed {
		for bit := range 8 {
			bad := bytes.Clone(signed)
			bad[i] ^= 1 << bit
			if _, err := trust.Open(bad); err == nil {
				t.Fatalf("bit %d of byte %d: opened\n%s", bit, i, bad)
			}
		}
	}
}

// TestNeverLessThanBefore checks that a checkpoint extends only an older one of the same log, by its proof. A log and a
// witness sign only then.
func TestNeverLessThanBefore(t *testing.T) {
	b, other := day(t, 1), day(t, 1)
	other.add("x", "{}")
	b.add("y", "{}")
	size := len(b.roots) - 1
	proof := consistency(t, b.leaves(), uint64(size), 5)
	now, old := b.roots[size], b.roots[5]
	do(t, now.Extends(old, proof))
	for name, c := range map[string]struct {
		now, last Checkpoint
		proof     []Hash
		want      Reason
	}{
		"less":          {old, now, proof, Rollback},
		"no proof":      {now, old, nil, Forked},
		"another tree":  {other.roots[size], old, proof, Forked},
		"same size":     {other.roots[size], now, nil, Forked},
		"another log":   {day(t, 2).roots[8], old, proof, Replaced},
		"another's old": {now, day(t, 2).roots[5], proof, Replaced},
	} {
		var bad *Bad
		if err := c.now.Extends(c.last, c.proof); !errors.As(err, &bad) || bad.Reason != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	do(t, now.Extends(now, nil))
}

func (b *book) leaves() (leaves []Hash) {
	eachEntry(b.t, b.head.Seq, b.readers(), func(e Entry) { leaves = append(leaves, e.Leaf) })
	return leaves
}

// Case 28: the log changes its key; each key signs only in its time, and trust in the first leads to the next.
func TestKeyRotation(t *testing.T) {
	b := newBook(t, 1)
	before := b.sign(1, 1) // before a key was announced
	b.change(0, 1)
	b.call("r-1")
	b.change(1, 2) // entry 6
	b.call("r-2")
	b.change(2, 3) // entry 10
	b.call("r-3")
	size := len(b.roots) - 1
	for name, c := range map[string]struct {
		seen  []byte
		trust Trust
		want  Reason
	}{
		"before any":                   {before, b.trust(1), ""},
		"first":                        {b.sign(5, 1), b.trust(1), ""},
		"second, led to by the first":  {b.sign(6, 2), b.trust(1), ""},
		"third, led to by the first":   {b.sign(size, 3), b.trust(1), ""},
		"third, known itself":          {b.sign(size, 3), b.trust(3), ""},
		"first, only a later known":    {b.sign(5, 1), b.trust(2), Unsigned},
		"first, after it was replaced": {b.sign(6, 1), b.trust(1), Unsigned},
		"second, before its time":      {b.sign(5, 2), b.trust(1), Unsigned},
		"second, after its time":       {b.sign(size, 2), b.trust(1), Unsigned},
		"a stranger":                   {b.sign(size, 4), b.trust(1), Unsigned},
	} {
		t.Run(name, func(t *testing.T) { b.t = t; b.verify(Check{Trust: c.trust, Seen: [][]byte{c.seen}}, c.want) })
	}
	for name, forge := range map[string]func(b *book){
		"not by the one before":   func(b *book) { b.change(3, 2) },
		"by nobody":               func(b *book) { b.change(0, 2) },
		"one that was replaced":   func(b *book) { b.change(1, 2); b.change(2, 1) },
		"a witness's":             func(b *book) { b.add(KindKey, KeyChange{Key: b.witness(1), Signature: []byte("x")}) },
		"another log's":           func(b *book) { b.name = "bailey/palace/00"; b.change(1, 2) },
		"nothing":                 func(b *book) { b.add(KindKey, "{}") },
		"one key more":            func(b *book) { b.add(KindKey, `{"key":"","signature":"","more":1}`) },
		"signature of another":    func(b *book) { c := change2(t, b); c.Key = b.key(3); b.add(KindKey, c) },
		"signature that is wrong": func(b *book) { c := change2(t, b); c.Signature[5] ^= 1; b.add(KindKey, c) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, 1)
			b.change(0, 1)
			forge(b)
			b.verify(Check{}, Rekeyed)
		})
	}
}

// TestFirstKey checks that the log's first key must have the log's name.
func TestFirstKey(t *testing.T) {
	b := newBook(t, 1)
	b.name = day(t, 2).name
	b.change(0, 1)
	b.verify(Check{}, Rekeyed)
}

func change2(t *testing.T, b *book) KeyChange {
	c, err := newKeyChange(b.key(1), b.key(2), private(1))
	do(t, err)
	return c
}

func TestSegmentHeads(t *testing.T) {
	b := day(t, 1)
	line, _, _ := bytes.Cut(b.segments[1], []byte("\n"))
	start, err := ReadStart(append(line, '\n'))
	do(t, err)
	if start.Size != 6 || !slices.Equal(start.Open, []bailey.ReceiptID{"r-open"}) || start.Root != b.roots[6].Root {
		t.Fatalf("%+v", start)
	}
	// A writer continues from only the last segment and gets the same tree.
	tree, err := start.Tree()
	do(t, err)
	head := start.After()
	for e, err := range Scan(bytes.NewReader(b.segments[1]), head) {
		do(t, err)
		tree.Add(e.Leaf)
		head = Head{e.Seq, e.Hash}
	}
	if head != b.head || tree.Root() != b.tree.Root() {
		t.Error("from the last segment alone another head or root")
	}
	for name, forge := range map[string]func(s *Start){
		"size":           func(s *Start) { s.Size = 5 },
		"head":           func(s *Start) { s.Head[0] ^= 1 },
		"root":           func(s *Start) { s.Root[0] ^= 1 },
		"edge":           func(s *Start) { s.Edge[1][0] ^= 1 },
		"edge, longer":   func(s *Start) { s.Edge = append(s.Edge, s.Root) },
		"other tree":     func(s *Start) { s.Edge[0][3] ^= 1; tr, _ := NewTree(s.Size, s.Edge); s.Root = tr.Root() },
		"open, less":     func(s *Start) { s.Open = []bailey.ReceiptID{} },
		"receipts, more": func(s *Start) { s.Open = append(s.Open, "r-9") },
		"open, null":     func(s *Start) { s.Open = nil },
		"open, twice":    func(s *Start) { s.Open = []bailey.ReceiptID{"r-open", "r-open"} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, 1)
			b.change(0, 1)
			b.call("r-1")
			b.add(KindIntent, `{"receipt":"r-open"}`)
			s := newStart(b.head, b.tree, b.pairs.Open())
			forge(&s)
			b.segments = append(b.segments, nil)
			b.add(KindSegment, s)
			b.verify(Check{}, Started)
		})
	}
	twice := day(t, 1)
	twice.add(KindSegment, newStart(twice.head, twice.tree, twice.pairs.Open()))
	twice.verify(Check{}, Started)
	empty := day(t, 1)
	empty.segments = append(empty.segments, nil)
	empty.verify(Check{}, Started)
}
