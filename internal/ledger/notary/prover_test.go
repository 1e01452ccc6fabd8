package notary

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger"
)

const vectors = "../../../audit/testdata/signed"

// filesLog is the log in the vectors of package audit.
type filesLog struct{ segments []string }

func (f filesLog) Durable() (p ledger.Position) {
	for e, err := range f.Entries(context.Background(), ledger.Place{}, p) {
		if err != nil {
			panic(err)
		}
		p.Tree.Add(e.Leaf)
	}
	return p
}

func (f filesLog) Entries(context.Context, ledger.Place, ledger.Position) iter.Seq2[ledger.Placed, error] {
	return func(yield func(ledger.Placed, error) bool) {
		var head audit.Head
		for _, name := range f.segments {
			text, err := os.ReadFile(filepath.Join(vectors, name))
			if err != nil {
				yield(ledger.Placed{}, err)
				return
			}
			for e, err := range audit.Scan(bytes.NewReader(text), head) {
				if !yield(ledger.Placed{Entry: e}, err) {
					return
				}
				head = audit.Head{Seq: e.Seq, Hash: e.Hash}
			}
		}
	}
}

func (filesLog) RecordKey(context.Context, audit.KeyChange) error { return errors.ErrUnsupported }
func (filesLog) Disagrees(bad audit.Bad) error                    { return &bad }

func vectorFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(vectors, name))
	do(t, err)
	return text
}

// vectorNotary returns the notary of the log in the vectors.
func vectorNotary() *Notary {
	return New(Config{Log: filesLog{[]string{"day-1.jsonl", "day-2.jsonl", "day-3.jsonl"}}})
}

// TestReceiptIsTheVector checks that the portable receipt and the signature of a checkpoint are those of the vectors of
// package audit, which docs/verify.py verifies too.
func TestReceiptIsTheVector(t *testing.T) {
	n := vectorNotary()
	newest := vectorFile(t, "newest.note")
	c, err := audit.ReadCheckpoint(newest)
	do(t, err)
	seqs, _, err := n.findEntries(t.Context(), "r-2", c.Size)
	do(t, err)
	r, err := n.proveEntries(t.Context(), newest, seqs)
	do(t, err)
	if want := vectorFile(t, "r-2.receipt"); !bytes.Equal(r.Text(), want) {
		t.Errorf("%s\nwant %s", r.Text(), want)
	}
	by, err := newSigner(c.Origin, ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize)))
	do(t, err)
	signed, err := signCheckpoint(c, audit.Checkpoint{}, nil, by)
	if err != nil || !bytes.HasPrefix(newest, signed) {
		t.Errorf("%s %v", signed, err)
	}
}

// TestProveRefuses checks that no receipt is made of an entry that the checkpoint does not sign.
func TestProveRefuses(t *testing.T) {
	n := vectorNotary()
	if _, _, err := n.findEntries(t.Context(), "r-3", 6); bailey.KindOf(err) != bailey.NotFound {
		t.Errorf("a receipt that is not signed yet: %v", err)
	}
	newest := vectorFile(t, "newest.note")
	c, err := audit.ReadCheckpoint(newest)
	do(t, err)
	if _, err := n.proveEntries(t.Context(), newest, []uint64{c.Size + 1}); err == nil {
		t.Error("an entry after the checkpoint")
	}
	n.c.Log = filesLog{[]string{"other-1.jsonl", "other-2.jsonl"}}
	var bad *audit.Bad
	if _, err := n.proveEntries(t.Context(), vectorFile(t, "old.note"), []uint64{3}); !errors.As(err, &bad) || bad.Reason != audit.Forked {
		t.Errorf("under another log's checkpoint: %v", err)
	}
}

// TestSignsOnlyWhatExtends checks that a checkpoint is signed only if it extends the one signed last, and only in the
// log's own name.
func TestSignsOnlyWhatExtends(t *testing.T) {
	leaves := someLeaves(12)
	other := slices.Clone(leaves)
	other[11][0] ^= 1
	at := func(origin string, leaves []audit.Hash) audit.Checkpoint {
		return audit.Checkpoint{Origin: origin, Size: uint64(len(leaves)), Root: rootOver(leaves)}
	}
	by, err := newSigner("log", ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize)))
	do(t, err)
	p := proverOf(t, 12)
	do(t, p.wantConsistency(5))
	feed(t, p, leaves)
	proof, err := p.consistencyWith(5)
	do(t, err)
	now, old := at("log", leaves), at("log", leaves[:5])
	for range 2 {
		_, err = signCheckpoint(now, old, proof, by)
		do(t, err)
		old, proof = now, nil // the same again
	}
	old = at("log", leaves[:5])
	for name, c := range map[string]struct {
		now, last audit.Checkpoint
		proof     []audit.Hash
		want      audit.Reason
	}{
		"less":          {old, now, proof, audit.Rollback},
		"no proof":      {now, old, nil, audit.Forked},
		"another tree":  {at("log", other), old, proof, audit.Forked},
		"same size":     {at("log", other), now, nil, audit.Forked},
		"another log":   {at("other", leaves), old, proof, audit.Replaced},
		"another's old": {now, at("other", leaves[:5]), proof, audit.Replaced},
	} {
		var bad *audit.Bad
		if _, err := signCheckpoint(c.now, c.last, c.proof, by); !errors.As(err, &bad) || bad.Reason != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := signCheckpoint(at("other", leaves), audit.Checkpoint{}, nil, by); err == nil {
		t.Error("signed in another log's name")
	}
}

func TestSignersRefuse(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	do(t, err)
	for name, k := range map[string]crypto.Signer{"another kind": other, "none": nil} {
		if _, err := newSigner("log", k); err == nil {
			t.Errorf("%s signs", name)
		}
	}
	if _, err := newSigner("two words", ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))); err == nil {
		t.Error("a name with a space signs")
	}
}

// TestEveryProof checks the proofs of each entry and each older size of each tree up to a size.
func TestEveryProof(t *testing.T) {
	leaves := someLeaves(70)
	for size := uint64(1); size <= uint64(len(leaves)); size++ {
		p := proverOf(t, size)
		for seq := uint64(1); seq <= size; seq++ {
			do(t, p.wantInclusion(seq))
			do(t, p.wantConsistency(seq-1))
		}
		do(t, p.wantConsistency(size))
		feed(t, p, leaves)
		root, err := p.treeRoot()
		do(t, err)
		if want := rootOver(leaves[:size]); root != want {
			t.Fatalf("%d leaves: %s, want %s", size, root, want)
		}
		c := audit.Checkpoint{Origin: "log", Size: size, Root: root}
		for seq := uint64(1); seq <= size; seq++ {
			proof, err := p.inclusionOf(seq)
			do(t, err)
			do(t, c.Includes(seq, leaves[seq-1], proof))
		}
		for old := range size + 1 {
			proof, err := p.consistencyWith(old)
			do(t, err)
			do(t, c.Extends(audit.Checkpoint{Origin: "log", Size: old, Root: rootOver(leaves[:old])}, proof))
		}
	}
}

func TestProverRefuses(t *testing.T) {
	leaves := someLeaves(9)
	for _, size := range []uint64{0, mostEntries + 1} {
		if _, err := newProver(size); err == nil {
			t.Errorf("a prover of %d", size)
		}
	}
	mustNot := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s passes", what)
		}
	}
	p := proverOf(t, 9)
	mustNot("entry 0", p.wantInclusion(0))
	mustNot("entry 10", p.wantInclusion(10))
	mustNot("size 10", p.wantConsistency(10))
	do(t, p.wantInclusion(4))
	feed(t, p, leaves[:5])
	_, err := p.treeRoot()
	mustNot("a root over leaves that are not there", err)
	_, err = p.inclusionOf(4)
	mustNot("a proof over leaves that are not there", err)
	feed(t, p, leaves[5:])
	_, err = p.inclusionOf(8)
	mustNot("a proof that was not wanted in time", err)
}

func BenchmarkInclusion(b *testing.B) {
	p := proverOf(b, 1<<16)
	do(b, p.wantInclusion(12345))
	feed(b, p, someLeaves(1<<16))
	for b.Loop() {
		if _, err := p.inclusionOf(12345); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProver(b *testing.B) {
	leaves := someLeaves(1 << 16)
	for b.Loop() {
		p := proverOf(b, 1<<16)
		do(b, p.wantConsistency(1<<15))
		feed(b, p, leaves)
	}
}

func proverOf(t testing.TB, size uint64) *prover {
	t.Helper()
	p, err := newProver(size)
	do(t, err)
	return p
}

func feed(t testing.TB, p *prover, leaves []audit.Hash) {
	t.Helper()
	for _, l := range leaves {
		p.addLeaf(l)
	}
}

func someLeaves(n int) (leaves []audit.Hash) {
	for i := range n {
		leaves = append(leaves, audit.Leaf(fmt.Appendf(nil, "line %d\n", i)))
	}
	return leaves
}

func rootOver(leaves []audit.Hash) audit.Hash {
	var tree audit.Tree
	for _, l := range leaves {
		tree.Add(l)
	}
	return tree.Root()
}
