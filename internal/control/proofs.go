package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"bailey"
	"bailey/audit"
	"bailey/internal/store"

	"golang.org/x/mod/sumdb/tlog"
)

// subtreeSize is how many entries the stored subtrees of a ledger have: 2^subtreeLevel.
const (
	subtreeLevel = 8
	subtreeSize  = 1 << subtreeLevel
)

// addLeaf adds an entry to the last subtree, and stores the subtree when it is full.
func (g *growth) addLeaf(ctx context.Context, leaf audit.Hash) error {
	g.last.Add(leaf)
	if g.last.Size() < subtreeSize {
		return nil
	}
	root := g.last.Root()
	g.last = audit.Tree{}
	return g.s.Store.AddSubtree(ctx, g.tx, g.Host, g.Size/subtreeSize-1, root.String())
}

// prover makes inclusion proofs for the copy of a ledger, from the stored subtrees and the lines of the few subtrees that
// the entries are in.
type prover struct {
	ctx    context.Context
	s      *Server
	ledger store.Ledger
	size   uint64 // of the tree: that of the checkpoint
	roots  []audit.Hash
	known  map[int64]tlog.Hash     // by stored hash index
	leaves map[uint64][]audit.Hash // by subtree
}

// newProver returns a prover for the ledger's last checkpoint.
func (s *Server) newProver(ctx context.Context, l store.Ledger) (*prover, error) {
	p := &prover{ctx: ctx, s: s, ledger: l, size: l.Signed, known: map[int64]tlog.Hash{}, leaves: map[uint64][]audit.Hash{}}
	if l.Signed == 0 {
		return nil, bailey.NotFound.New("the host has not signed a checkpoint yet", "try again in a few seconds")
	}
	full := p.size / subtreeSize
	stored, err := s.Store.Subtrees(ctx, l.Host, full)
	if err != nil {
		return nil, err
	}
	missing := map[uint64]string{}
	for n := range full {
		text, ok := stored[n]
		if !ok { // an older version of the server has stored these entries
			leaves, err := p.readLeaves(n)
			if err != nil {
				return nil, err
			}
			text = treeRoot(leaves).String()
			missing[n] = text
		}
		var root audit.Hash
		if err := root.UnmarshalText([]byte(text)); err != nil {
			return nil, err
		}
		p.roots = append(p.roots, root)
	}
	if len(missing) == 0 {
		return p, nil
	}
	return p, s.Store.Change(ctx, func(tx *store.Tx) (err error) {
		for n, text := range missing {
			err = errors.Join(err, s.Store.AddSubtree(ctx, tx, l.Host, n, text))
		}
		return err
	})
}

// treeRoot returns the root over hashes that are on one level.
func treeRoot(hashes []audit.Hash) audit.Hash {
	var t audit.Tree
	for _, h := range hashes {
		t.Add(h)
	}
	return t.Root()
}

// maxLeaves is how many subtrees are in memory with their leaves.
const maxLeaves = 64

// readLeaves returns the leaves of a subtree, up to the size of the tree.
func (p *prover) readLeaves(n uint64) ([]audit.Hash, error) {
	if leaves, ok := p.leaves[n]; ok {
		return leaves, nil
	}
	first := n * subtreeSize
	count := int(min(subtreeSize, p.size-first))
	lines, err := p.s.Store.Entries(p.ctx, p.ledger.Host, first, count)
	if err == nil && len(lines) < count {
		err = bailey.Internal.New("lines of the copy are missing", "")
	}
	if err != nil {
		return nil, err
	}
	var leaves []audit.Hash
	for _, e := range lines {
		leaves = append(leaves, audit.Leaf([]byte(e.Line)))
	}
	if len(p.leaves) >= maxLeaves {
		clear(p.leaves)
	}
	p.leaves[n] = leaves
	return leaves, nil
}

// ReadHashes implements [tlog.HashReader].
func (p *prover) ReadHashes(indexes []int64) (list []tlog.Hash, err error) {
	for _, i := range indexes {
		h, ok := p.known[i]
		if !ok {
			level, n := tlog.SplitStoredHashIndex(i)
			nodes, first, count := p.roots, uint64(n)<<(max(level, subtreeLevel)-subtreeLevel), uint64(1)<<max(level-subtreeLevel, 0)
			if level < subtreeLevel {
				at := uint64(n) << level
				if nodes, err = p.readLeaves(at / subtreeSize); err != nil {
					return nil, err
				}
				first, count = at%subtreeSize, uint64(1)<<level
			}
			if first+count > uint64(len(nodes)) {
				return nil, errors.New("the tree has no such node")
			}
			h = tlog.Hash(treeRoot(nodes[first : first+count]))
			p.known[i] = h
		}
		list = append(list, h)
	}
	return list, nil
}

// proveEntries returns entries with their proofs, in the order of their numbers. The server checks what it hands out.
func (p *prover) proveEntries(seqs []uint64) ([]audit.Proven, error) {
	slices.Sort(seqs)
	seqs = slices.Compact(seqs)
	lines, err := p.s.Store.EntriesAt(p.ctx, p.ledger.Host, seqs...)
	if err != nil {
		return nil, err
	}
	if len(lines) != len(seqs) {
		return nil, bailey.Internal.New("lines of the copy are missing", "")
	}
	c, err := audit.ReadCheckpoint([]byte(p.ledger.Checkpoint))
	if err != nil {
		return nil, err
	}
	var all []audit.Proven
	for _, e := range lines {
		if e.Seq > p.size {
			return nil, bailey.NotFound.New("the checkpoint of the host does not cover this receipt yet",
				"try again in a few seconds")
		}
		proof, err := tlog.ProveRecord(int64(p.size), int64(e.Seq-1), p)
		if err != nil {
			return nil, err
		}
		one := audit.Proven{Seq: e.Seq, Line: []byte(e.Line)}
		for _, h := range proof {
			one.Proof = append(one.Proof, audit.Hash(h))
		}
		if err := c.Includes(e.Seq, audit.Leaf(one.Line), one.Proof); err != nil {
			return nil, bailey.Internal.Wrap(err, "the copy of the ledger does not match its checkpoint",
				"export the ledger and verify it: bailey audit verify")
		}
		all = append(all, one)
	}
	return all, nil
}

// entriesOfReceipts returns the numbers of the entries that prove receipts of a host: all keys, and for each receipt the
// intent, the outcome and its plan. Receipts that began after the checkpoint are left out, and so are later outcomes.
func (s *Server) entriesOfReceipts(ctx context.Context, l store.Ledger, all []store.Receipt) ([]uint64, error) {
	seqs, err := s.Store.EntriesOf(ctx, l.Host, audit.KindKey, l.Signed)
	if err != nil {
		return nil, err
	}
	var outcomes []uint64
	for _, r := range all {
		if r.Seq <= l.Signed {
			seqs = append(seqs, r.Seq)
		}
		if r.OutcomeSeq > 0 && r.OutcomeSeq <= l.Signed {
			outcomes = append(outcomes, r.OutcomeSeq)
		}
	}
	lines, err := s.Store.EntriesAt(ctx, l.Host, outcomes...)
	if err != nil {
		return nil, err
	}
	plans := map[string]uint64{}
	for _, e := range lines {
		digest := planOf(entryData(e.Line))
		if digest != "" && plans[digest] == 0 {
			if plans[digest], err = s.Store.PlanAt(ctx, l.Host, digest, e.Seq); err != nil {
				return nil, fmt.Errorf("the plan of entry %d: %w", e.Seq, err)
			}
			seqs = append(seqs, plans[digest])
		}
	}
	return append(seqs, outcomes...), nil
}

// proveReceipt returns the portable receipt of a call.
func (s *Server) proveReceipt(ctx context.Context, l store.Ledger, r store.Receipt) (audit.Receipt, error) {
	p, err := s.newProver(ctx, l)
	if err != nil {
		return audit.Receipt{}, err
	}
	seqs, err := s.entriesOfReceipts(ctx, l, []store.Receipt{r})
	if err != nil {
		return audit.Receipt{}, err
	}
	if r.Seq > l.Signed {
		seqs = []uint64{r.Seq}
	}
	entries, err := p.proveEntries(seqs)
	return audit.Receipt{Entries: entries, Checkpoint: []byte(l.Checkpoint)}, err
}
