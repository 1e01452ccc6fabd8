package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
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

// maxSize bounds a tree, so that 63 bits can number its stored hashes.
const maxSize = 1 << 61

// Prover collects the hashes of proofs while a ledger is read once. It holds about 2·log2(size) hashes for each proof,
// regardless of the ledger's length.
type Prover struct {
	size uint64
	tree Tree
	want map[int64]tlog.Hash // by stored hash index (tlog.StoredHashIndex); zero until the hash was seen
}

// NewProver returns a Prover for proofs to the tree over the first size entries. The caller must first request the
// proofs, then add the leaves of those entries, then read the proofs.
func NewProver(size uint64) (*Prover, error) {
	if size == 0 || size > maxSize {
		return nil, fmt.Errorf("there are no proofs to a tree of %d entries", size)
	}
	return &Prover{size: size, want: make(map[int64]tlog.Hash)}, nil
}

// WantInclusion requests a proof that the tree includes the entry numbered seq.
func (p *Prover) WantInclusion(seq uint64) error {
	_, err := p.proveInclusion(seq, p.recordingReader())
	return ignoreNoted(err)
}

// WantConsistency requests a proof of consistency with the first size entries.
func (p *Prover) WantConsistency(size uint64) error {
	_, err := p.proveConsistency(size, p.recordingReader())
	return ignoreNoted(err)
}

// Add adds the leaf of the next entry. Entries after the first size do not matter.
func (p *Prover) Add(leaf Hash) {
	if p.tree.size >= p.size {
		return
	}
	p.tree.addLeaf(leaf, func(level int, n uint64, h Hash) {
		i := tlog.StoredHashIndex(level, int64(n))
		if _, ok := p.want[i]; ok {
			p.want[i] = tlog.Hash(h)
		}
	})
}

// Inclusion returns the proof that the entry numbered seq is in the tree: its siblings from the leaf up.
func (p *Prover) Inclusion(seq uint64) ([]Hash, error) { return p.proveInclusion(seq, p.hashReader()) }

// Consistency returns the proof that the tree begins with the tree over the first size entries.
func (p *Prover) Consistency(size uint64) ([]Hash, error) {
	return p.proveConsistency(size, p.hashReader())
}

// Root returns the root of the tree. It fails if not all leaves were added.
func (p *Prover) Root() (Hash, error) {
	if p.tree.size < p.size {
		return Hash{}, fmt.Errorf("the ledger has %d entries, not the %d that are to be proved", p.tree.size, p.size)
	}
	return p.tree.Root(), nil
}

func (p *Prover) proveInclusion(seq uint64, r tlog.HashReader) ([]Hash, error) {
	if seq == 0 || seq > p.size {
		return nil, fmt.Errorf("a tree of %d entries does not hold entry %d", p.size, seq)
	}
	proof, err := tlog.ProveRecord(int64(p.size), int64(seq-1), r)
	return fromTlogHashes(proof), err
}

func (p *Prover) proveConsistency(size uint64, r tlog.HashReader) ([]Hash, error) {
	if size > p.size {
		return nil, fmt.Errorf("a tree of %d entries does not begin with %d", p.size, size)
	}
	if size == 0 || size == p.size {
		return nil, nil // RFC 6962, section 2.1.2: there is nothing to prove
	}
	proof, err := tlog.ProveTree(int64(p.size), int64(size), r)
	return fromTlogHashes(proof), err
}

var errNoted = errors.New("noted")

// ignoreNoted returns nil for errNoted, and every other error unchanged.
func ignoreNoted(err error) error {
	if errors.Is(err, errNoted) {
		return nil
	}
	return err
}

// recordingReader returns a reader that records the requested hashes. tlog requests all hashes of a proof at once.
func (p *Prover) recordingReader() tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		for _, i := range indexes {
			if _, ok := p.want[i]; !ok {
				p.want[i] = tlog.Hash{}
			}
		}
		return nil, errNoted
	})
}

// hashReader returns a reader of the collected hashes.
func (p *Prover) hashReader() tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		list := make([]tlog.Hash, len(indexes))
		for k, i := range indexes {
			h, ok := p.want[i]
			if !ok || h == (tlog.Hash{}) {
				return nil, errors.New("a proof needs to be wanted before the leaves are added, and all of them")
			}
			list[k] = h
		}
		return list, nil
	})
}

func fromTlogHashes[T ~[]tlog.Hash](list T) []Hash {
	out := make([]Hash, len(list))
	for i, h := range list {
		out[i] = Hash(h)
	}
	return out
}

// checkInclusion returns nil if proof shows that the tree with this size and root holds leaf at seq.
func checkInclusion(proof []Hash, size uint64, root Hash, seq uint64, leaf Hash) error {
	if size > maxSize || seq == 0 || seq > size {
		return fmt.Errorf("a tree of %d entries does not hold entry %d", size, seq)
	}
	if tlog.CheckRecord(toTlogHashes(proof), int64(size), tlog.Hash(root), int64(seq-1), tlog.Hash(leaf)) != nil {
		return fmt.Errorf("the proof does not lead from entry %d to the root over %d", seq, size)
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
			return fmt.Errorf("two roots over %d entries", older)
		}
		return nil
	}
	if tlog.CheckTree(toTlogHashes(proof), int64(size), tlog.Hash(root), int64(older), tlog.Hash(olderRoot)) != nil {
		return fmt.Errorf("the proof does not lead from the root over %d entries to that over %d", older, size)
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
