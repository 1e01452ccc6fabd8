package audit

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// portable returns the receipt of id under the checkpoint signed.
func (b *book) portable(id bailey.ReceiptID, signed []byte, size int) []byte {
	b.t.Helper()
	return b.prove(signed, b.find(id, size)...).Text()
}

// strayPlan returns the receipt of an open call with the plan of another call.
func (b *book) strayPlan(id, other bailey.ReceiptID, signed []byte, size int) []byte {
	b.t.Helper()
	seqs := b.find(id, size)
	for _, p := range b.prove(signed, b.find(other, size)...).Entries {
		if bytes.Contains(p.Line, []byte(`"kind":"plan"`)) {
			seqs = append(seqs, p.Seq)
		}
	}
	return b.prove(signed, seqs...).Text()
}

func TestReceiptTravels(t *testing.T) {
	b := day(t, 1)
	b.change(1, 2)
	b.call("r-3")
	size := len(b.roots) - 1
	signed := b.cosign(b.sign(size, 2), 1)
	trust := Trust{b.trust(1).Keys, []Key{b.witness(1)}, 1}
	for _, id := range []bailey.ReceiptID{"r-1", "r-2", "r-3"} {
		v, err := VerifyReceipt(b.portable(id, signed, size), trust)
		if err != nil {
			t.Fatal(id, err)
		}
		if v.Intent.Receipt != id || v.Outcome.Receipt != id || v.Plan.Text != "plan of "+string(id) || v.Size != uint64(size) || len(v.Cosignatures) != 1 {
			t.Errorf("%s: %+v", id, v)
		}
	}
	open := b.portable("r-open", b.sign(6, 1), 6)
	v, err := VerifyReceipt(open, b.trust(1))
	if err != nil || v.Intent.Receipt != "r-open" || v.Outcome.Seq != 0 {
		t.Errorf("an open call: %+v, %v", v, err)
	}
}

// TestEveryBitOfAReceipt checks that a receipt does not verify if any bit changes.
func TestEveryBitOfAReceipt(t *testing.T) {
	ktest.Long(t)
	b := day(t, 1)
	text := b.portable("r-open", b.sign(6, 1), 6)
	if _, err := VerifyReceipt(text, b.trust(1)); err != nil {
		t.Fatal(err)
	}
	for i := range text {
		for bit := range 8 {
			bad := bytes.Clone(text)
			bad[i] ^= 1 << bit
			if _, err := VerifyReceipt(bad, b.trust(1)); err == nil {
				t.Fatalf("bit %d of byte %d: verified\n%s", bit, i, bad)
			}
		}
		if _, err := VerifyReceipt(slices.Concat(text[:i], text[i+1:]), b.trust(1)); err == nil {
			t.Fatalf("byte %d left out: verified", i)
		}
	}
}

func TestReceiptRefuses(t *testing.T) {
	b := day(t, 1)
	size := len(b.roots) - 1
	signed := b.sign(size, 1)
	good, other := b.find("r-2", size), b.find("r-1", size)
	prove := func(seqs ...uint64) []byte { return b.prove(signed, seqs...).Text() }
	text := prove(good...)
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"two calls":        {prove(append(other, good...)...), "one intent"},
		"no intent":        {prove(good[0], good[2], good[3]), "without an intent"},
		"no outcome, plan": {prove(good[0]), "no intent"},
		"no plan":          {prove(good[0], good[1], good[3]), "no earlier entry has"},
		"a genesis":        {prove(append(good, 1)...), "cannot be part of a receipt"},
		"no key":           {prove(good[1:]...), ""}, // the first key is trusted
		"nothing":          {nil, "must begin with"},
		"no checkpoint":    {text[:bytes.Index(text, []byte("\n\n"))+2], "its checkpoint: it is not a checkpoint: it is empty"},
		"no entries":       {[]byte(receiptHead + "\n" + string(signed)), "no intent"},
		"space":            {append(bytes.Clone(text), '\n'), "line 6 is not a signature"},
		"twice":            {[]byte(strings.Replace(string(text), "entry 9\n", "entry 8\n", 1)), "number"},
		"plus":             {[]byte(strings.Replace(string(text), "entry 8\n", "entry 08\n", 1)), "canonical form"},
		"huge":             {make([]byte, MaxReceipt+1), "at most"},
		"long proof":       {[]byte(strings.Replace(string(text), "entry 8\n", "entry 8\n"+strings.Repeat(strings.Repeat("0", 64)+"\n", 70), 1)), "not followed by a line"},
	} {
		_, err := VerifyReceipt(c.text, b.trust(1))
		if c.want == "" && err == nil {
			continue
		}
		if err == nil || c.want == "" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	var bad *Bad
	if _, err := VerifyReceipt(text, b.trust(2)); !errors.As(err, &bad) || bad.Reason != Unsigned {
		t.Errorf("another key: %v", err)
	}
	if _, err := VerifyReceipt(text, Trust{b.trust(1).Keys, []Key{b.witness(1)}, 1}); !errors.As(err, &bad) || bad.Reason != Unwitnessed {
		t.Errorf("no witness: %v", err)
	}
	b.change(1, 2)
	size = len(b.roots) - 1
	if _, err := VerifyReceipt(b.portable("r-2", b.sign(size, 1), size), b.trust(1)); !errors.As(err, &bad) || bad.Reason != Unsigned {
		t.Errorf("a key that was replaced: %v", err)
	}
}

// TestReceiptOfABrokenChain checks that a receipt alone is sufficient to detect a log that signs lines whose hashes do
// not follow.
func TestReceiptOfABrokenChain(t *testing.T) {
	for _, broken := range []bool{false, true} {
		b := newBook(t, 1)
		b.add(KindIntent, `{"receipt":"r-1"}`)
		prev := b.head.Hash
		if broken {
			prev[0] ^= 1
		}
		line, _, err := Append(prev, Entry{Seq: 3, Kind: KindOutcome, Data: []byte(`{"receipt":"r-1"}`)})
		do(t, err)
		b.tree.Add(Leaf(line))
		leaves := append(b.leaves(), Leaf(line))
		b.roots = append(b.roots, b.checkpoint())
		r := Receipt{Checkpoint: b.sign(3, 1), Entries: []Proven{{Seq: 2, Line: bytes.SplitAfter(b.segments[0], []byte("\n"))[1]}, {Seq: 3, Line: line}}}
		for i := range r.Entries {
			r.Entries[i].Proof = inclusion(t, leaves, 3, r.Entries[i].Seq)
		}
		if _, err := VerifyReceipt(r.Text(), b.trust(1)); (err != nil) != broken {
			t.Errorf("broken %v: %v", broken, err)
		}
	}
}

// TestForget checks that if a body and its salt are deleted, the ledger still verifies, and the body cannot be guessed.
func TestForget(t *testing.T) {
	b := newBook(t, 1)
	type blob struct {
		salt Salt
		body []byte
	}
	blobs := map[int]blob{}
	var said []Commitment
	for i := range 3 {
		blobs[i] = blob{Salt{1, byte(i)}, fmt.Appendf(nil, "body %d", i)}
		said = append(said, Commit(blobs[i].salt, blobs[i].body))
		b.add("x", map[string]Commitment{"body": said[i]})
	}
	before := b.verify(Check{}, "")
	delete(blobs, 1)
	if after := b.verify(Check{}, ""); after.Head != before.Head || after.Root != before.Root {
		t.Error("forgetting changed the ledger")
	}
	for i, held := range blobs {
		do(t, said[i].Check(held.salt, held.body))
		mustNot(t, "another body", said[i].Check(held.salt, append(held.body, 'x')))
		mustNot(t, "another salt", said[i].Check(Salt{2}, held.body))
		mustNot(t, "another's", said[1].Check(held.salt, held.body))
		mustNot(t, "another length", Commitment{said[i].Length + 1, said[i].Digest}.Check(held.salt, held.body))
	}
	if same := Commit(Salt{}, []byte("body 1")); same.Digest == said[1].Digest {
		t.Error("without its salt the body can be guessed")
	}
	if text := fmt.Sprint(blobs[0].salt); text != "***" {
		t.Errorf("a salt says %s", text)
	}
	if Commit(Salt{}, []byte("ab")).Digest == Commit(Salt{}, []byte("a")).Digest {
		t.Error("two bodies, one commitment")
	}
}
