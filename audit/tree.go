package audit

import (
	"crypto/sha256"
	"errors"
	"math/bits"
)

// Leaf returns the leaf hash (RFC 6962, section 2.1) of a line, including its newline.
func Leaf(line []byte) (h Hash) {
	d := sha256.New()
	d.Write([]byte{0})
	d.Write(line)
	d.Sum(h[:0])
	return h
}

// Tree is the Merkle tree of RFC 6962, section 2.1, over a ledger's lines. It holds only the right edge, which is
// enough for growing and hashing. The zero value is the empty tree. A copy is independent of the original.
type Tree struct {
	size uint64
	edge [64]Hash // at each level where size has a 1: the root of the full subtree of 2^level leaves there
}

// Size returns the number of leaves.
func (t *Tree) Size() uint64 { return t.size }

// Add appends a leaf.
func (t *Tree) Add(leaf Hash) { t.addLeaf(leaf, func(int, uint64, Hash) {}) }

// addLeaf appends a leaf and calls full for each node that it completes, with the node's level and its number on that
// level.
func (t *Tree) addLeaf(h Hash, full func(level int, n uint64, h Hash)) {
	full(0, t.size, h)
	level := 0
	for ; t.size>>level&1 == 1; level++ {
		h = nodeHash(t.edge[level], h)
		full(level+1, t.size>>(level+1), h)
	}
	t.edge[level] = h
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
		return Tree{}, errors.New("the edge of a tree has one hash for each one in its size")
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
func nodeHash(left, right Hash) Hash {
	var b [1 + 2*sha256.Size]byte
	b[0] = 1
	copy(b[1:], left[:])
	copy(b[1+sha256.Size:], right[:])
	return sha256.Sum256(b[:])
}
