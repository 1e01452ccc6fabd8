package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
)

// slowRoot is a second, simple implementation of the tree from RFC 6962, section 2.1.
func slowRoot(leaves [][]byte) Hash {
	switch len(leaves) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return sha256.Sum256(append([]byte{0}, leaves[0]...))
	}
	k := 1
	for k*2 < len(leaves) {
		k *= 2
	}
	left, right := slowRoot(leaves[:k]), slowRoot(leaves[k:])
	return sha256.Sum256(slices.Concat([]byte{1}, left[:], right[:]))
}

func someLeaves(n int) (lines [][]byte, leaves []Hash) {
	for i := range n {
		lines = append(lines, fmt.Appendf(nil, "line %d\n", i))
		leaves = append(leaves, Leaf(lines[i]))
	}
	return lines, leaves
}

func TestTreeIsRFC6962(t *testing.T) {
	lines, leaves := someLeaves(130)
	var tree Tree
	for n := range len(lines) + 1 {
		if got, want := tree.Root(), slowRoot(lines[:n]); got != want || tree.Size() != uint64(n) {
			t.Fatalf("%d leaves: %s, want %s", n, got, want)
		}
		again, err := NewTree(tree.Size(), tree.Edge())
		if err != nil || again.Root() != tree.Root() {
			t.Fatalf("%d leaves, from the edge: %v", n, err)
		}
		if n < len(lines) {
			tree = again
			tree.Add(leaves[n])
		}
	}
	if _, err := NewTree(3, tree.Edge()[:1]); err == nil {
		t.Error("a tree of three leaves with an edge of one hash")
	}
}

// TestTreeIsAValue checks that a copy of a tree is independent, so that a writer that drops a group can continue from
// the old tree.
func TestTreeIsAValue(t *testing.T) {
	_, leaves := someLeaves(9)
	var tree Tree
	for _, l := range leaves[:7] {
		tree.Add(l)
	}
	before, other := tree.Root(), tree
	other.Add(leaves[7])
	other.Add(leaves[8])
	if tree.Root() != before || other.Root() == before {
		t.Error("adding to a copy changed the tree")
	}
}

// TestTreeKnowsTheVectors checks the vectors of Certificate Transparency's own tests: eight leaves and their root.
func TestTreeKnowsTheVectors(t *testing.T) {
	var tree Tree
	for _, leaf := range []string{"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"} {
		raw, err := hex.DecodeString(leaf)
		if err != nil {
			t.Fatal(err)
		}
		tree.Add(Leaf(raw))
	}
	if got := tree.Root().String(); got != "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328" {
		t.Error(got)
	}
}

// TestEveryInclusion checks that each entry of each tree up to a size has its proof, and that no other entry, size or
// root accepts it.
func TestEveryInclusion(t *testing.T) {
	_, leaves := someLeaves(70)
	for size := uint64(1); size <= uint64(len(leaves)); size++ {
		root := rootOver(leaves[:size])
		for seq := uint64(1); seq <= size; seq++ {
			proof := inclusion(t, leaves, size, seq)
			do(t, checkInclusion(proof, size, root, seq, leaves[seq-1]))
			mustNot(t, "another leaf", checkInclusion(proof, size, root, seq, leaves[(seq+3)%70]))
			mustNot(t, "no entry", checkInclusion(proof, size, root, 0, leaves[seq-1]))
			mustNot(t, "one hash more", checkInclusion(append(proof, root), size, root, seq, leaves[seq-1]))
			if size > 1 {
				mustNot(t, "another entry", checkInclusion(proof, size, root, seq%size+1, leaves[seq-1]))
			}
			for i := range proof {
				bad := slices.Clone(proof)
				bad[i][i%32] ^= 1 << (i % 8)
				mustNot(t, "a bit of the proof", checkInclusion(bad, size, root, seq, leaves[seq-1]))
			}
		}
	}
}

// TestEveryConsistency checks that each pair of sizes is consistent, and only with its own proof.
func TestEveryConsistency(t *testing.T) {
	_, leaves := someLeaves(40)
	var roots []Hash
	var tree Tree
	for _, l := range leaves {
		roots = append(roots, tree.Root())
		tree.Add(l)
	}
	roots = append(roots, tree.Root())
	for size := uint64(1); size <= uint64(len(leaves)); size++ {
		root := rootOver(leaves[:size])
		for old := range size + 1 {
			proof := consistency(t, leaves, size, old)
			do(t, checkConsistency(proof, size, root, old, roots[old]))
			wrong := roots[old]
			wrong[0] ^= 1
			mustNot(t, "another old root", checkConsistency(proof, size, root, old, wrong))
			mustNot(t, "one hash more", checkConsistency(append(slices.Clone(proof), root), size, root, old, roots[old]))
			mustNot(t, "backward", checkConsistency(proof, old, roots[old], size+1, root))
			for i := range proof {
				bad := slices.Clone(proof)
				bad[i][i%32] ^= 1 << (i % 8)
				mustNot(t, "a bit of the proof", checkConsistency(bad, size, root, old, roots[old]))
			}
		}
	}
}

func rootOver(leaves []Hash) Hash {
	var tree Tree
	for _, l := range leaves {
		tree.Add(l)
	}
	return tree.Root()
}

func do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustNot(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s passes", what)
	}
}
