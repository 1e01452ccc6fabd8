package audit

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Growth follows a tree from one size on, and proves at any time that it has only grown since. A writer has
// one since the checkpoint that it signed last: the next needs no reading. It holds some 2·log2(size)
// hashes.
type Growth struct {
	from, tree Tree
	since      []subtree // the largest full subtrees that cover the leaves since from, in order
}

// subtree is the full subtree number n at its level.
type subtree struct {
	level int
	n     uint64
	root  Hash
}

// NewGrowth begins to follow a tree.
func NewGrowth(from Tree) *Growth { return &Growth{from: from, tree: from} }

// Tree returns the tree as it is now.
func (g *Growth) Tree() Tree { return g.tree }

// Add appends a leaf.
func (g *Growth) Add(leaf Hash) {
	g.since = append(g.since, subtree{0, g.tree.size, leaf})
	g.tree.Add(leaf)
	for len(g.since) > 1 {
		left, right := g.since[len(g.since)-2], g.since[len(g.since)-1]
		if left.level != right.level || left.n%2 != 0 {
			return // they are no siblings: the right one's is older, or not there yet
		}
		g.since = append(g.since[:len(g.since)-2], subtree{left.level + 1, left.n / 2, node(left.root, right.root)})
	}
}

// Consistency returns the proof that the tree begins with the one it grew from.
func (g *Growth) Consistency() ([]Hash, error) {
	if g.from.size == 0 || g.from.size == g.tree.size {
		return nil, nil // RFC 6962, section 2.1.2: there is nothing to show
	}
	have := make(map[int64]tlog.Hash)
	for level, h := range g.from.edge {
		if g.from.size>>level&1 == 1 {
			have[tlog.StoredHashIndex(level, int64(g.from.size>>level-1))] = tlog.Hash(h)
		}
	}
	for _, s := range g.since {
		have[tlog.StoredHashIndex(s.level, int64(s.n))] = tlog.Hash(s.root)
	}
	proof, err := tlog.ProveTree(int64(g.tree.size), int64(g.from.size), tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		list := make([]tlog.Hash, len(indexes))
		for k, i := range indexes {
			h, ok := have[i]
			if !ok {
				return nil, fmt.Errorf("a subtree between %d and %d entries is missing", g.from.size, g.tree.size)
			}
			list[k] = h
		}
		return list, nil
	}))
	return hashes(proof), err
}
