package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// Leaf returns the leaf hash (RFC 6962, section 2.1) of a line, including its newline.
func Leaf(line []byte) Hash { return Hash(tlog.RecordHash(line)) }

// Tree is the Merkle tree of RFC 6962, section 2.1, over a ledger's lines. It holds only the right edge, which is
// enough for growing and hashing. The zero value is the empty tree. A copy is independent of the original.
type Tree struct {
	size uint64
	edge [64]Hash // at each level where size has a 1: the root of the full subtree of 2^level leaves there
}

// Size returns the number of leaves.
func (t *Tree) Size() uint64 { return t.size }

// Add appends a leaf.
func (t *Tree) Add(leaf Hash) {
	level := 0
	for ; t.size>>level&1 == 1; level++ {
		leaf = nodeHash(t.edge[level], leaf)
	}
	t.edge[level] = leaf
	t.size++
}

// Root returns the root hash.
func (t *Tree) Root() Hash {
	if t.size == 0 {
		return sha256.Sum256(nil)
	}
	level := bits.TrailingZeros64(t.size)
	h := t.edge[level]
	for level++; level < len(t.edge); level++ {
		if t.size>>level&1 == 1 {
			h = nodeHash(t.edge[level], h)
		}
	}
	return h
}

// Edge returns the roots of the full subtrees that the tree consists of, the largest and first one first.
func (t *Tree) Edge() []Hash {
	edge := make([]Hash, 0, bits.OnesCount64(t.size))
	for level := len(t.edge) - 1; level >= 0; level-- {
		if t.size>>level&1 == 1 {
			edge = append(edge, t.edge[level])
		}
	}
	return edge
}

// NewTree returns the tree whose Size and Edge methods returned size and edge.
func NewTree(size uint64, edge []Hash) (Tree, error) {
	if size > maxSize || len(edge) != bits.OnesCount64(size) {
		return Tree{}, errors.New("the edge of a tree must have one hash for each 1 bit of its size")
	}
	t := Tree{size: size}
	for level := len(t.edge) - 1; level >= 0; level-- {
		if size>>level&1 == 1 {
			t.edge[level], edge = edge[0], edge[1:]
		}
	}
	return t, nil
}

// nodeHash returns the hash of the node over left and right.
func nodeHash(left, right Hash) Hash { return Hash(tlog.NodeHash(tlog.Hash(left), tlog.Hash(right))) }

// maxSize bounds a tree, so that 63 bits can number its stored hashes.
const maxSize = 1 << 61

// checkInclusion returns nil if proof shows that the tree with this size and root holds leaf at seq.
func checkInclusion(proof []Hash, size uint64, root Hash, seq uint64, leaf Hash) error {
	if size > maxSize || seq == 0 || seq > size {
		return fmt.Errorf("a tree of %d entries does not hold entry %d", size, seq)
	}
	if tlog.CheckRecord(toTlogHashes(proof), int64(size), tlog.Hash(root), int64(seq-1), tlog.Hash(leaf)) != nil {
		return fmt.Errorf("the proof does not connect entry %d to the root of %d entries", seq, size)
	}
	return nil
}

// checkConsistency returns nil if proof shows that the tree with this size and root begins with the older one.
func checkConsistency(proof []Hash, size uint64, root Hash, older uint64, olderRoot Hash) error {
	switch {
	case size > maxSize || older > size:
		return fmt.Errorf("a tree of %d entries does not begin with %d", size, older)
	case older == 0 || older == size:
		empty := Tree{}
		if len(proof) != 0 || older == size && root != olderRoot || older == 0 && olderRoot != empty.Root() {
			return fmt.Errorf("there are two different roots of %d entries", older)
		}
		return nil
	}
	if tlog.CheckTree(toTlogHashes(proof), int64(size), tlog.Hash(root), int64(older), tlog.Hash(olderRoot)) != nil {
		return fmt.Errorf("the proof does not connect the root of %d entries to the root of %d", older, size)
	}
	return nil
}

func toTlogHashes(list []Hash) []tlog.Hash {
	out := make([]tlog.Hash, len(list))
	for i, h := range list {
		out[i] = tlog.Hash(h)
	}
	return out
}
