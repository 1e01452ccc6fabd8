package notary

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"bailey"
	"bailey/audit"
)

// prover collects the hashes of proofs while a ledger is read once. It holds about 2·log2(size) hashes for each proof,
// regardless of the ledger's length. The proofs are first wanted, then the leaves added, then the proofs read.
type prover struct {
	size, added uint64
	edge        [64]tlog.Hash       // at each level: the newest full subtree there
	want        map[int64]tlog.Hash // by stored hash index (tlog.StoredHashIndex); zero until the hash was seen
}

// mostEntries bounds a tree, so that 63 bits can number its stored hashes.
const mostEntries = 1 << 61

// newProver returns a prover for the root over the first size entries and for proofs to it.
func newProver(size uint64) (*prover, error) {
	if size == 0 || size > mostEntries {
		return nil, fmt.Errorf("no proof is possible for a tree of %d entries", size)
	}
	p := &prover{size: size, want: make(map[int64]tlog.Hash)}
	_, err := tlog.TreeHash(int64(size), p.recordingReader())
	return p, ignoreNoted(err)
}

// wantInclusion requests a proof that the tree includes the entry numbered seq.
func (p *prover) wantInclusion(seq uint64) error {
	_, err := p.proveInclusion(seq, p.recordingReader())
	return ignoreNoted(err)
}

// wantConsistency requests a proof of consistency with the first old entries.
func (p *prover) wantConsistency(old uint64) error {
	_, err := p.proveConsistency(old, p.recordingReader())
	return ignoreNoted(err)
}

// addLeaf adds the leaf of the next entry. Entries after the first size do not matter.
func (p *prover) addLeaf(leaf audit.Hash) {
	if p.added >= p.size {
		return
	}
	h, n := tlog.Hash(leaf), int64(p.added)
	p.added++
	for level := 0; ; level++ {
		i := tlog.StoredHashIndex(level, n>>level)
		if _, ok := p.want[i]; ok {
			p.want[i] = h
		}
		if n>>level&1 == 0 {
			p.edge[level] = h
			return
		}
		h = tlog.NodeHash(p.edge[level], h)
	}
}

// root returns the root of the tree. It fails if not all leaves were added.
func (p *prover) treeRoot() (audit.Hash, error) {
	if p.added < p.size {
		return audit.Hash{}, fmt.Errorf("the ledger has %d entries, not the %d to be proved", p.added, p.size)
	}
	h, err := tlog.TreeHash(int64(p.size), p.hashReader())
	return audit.Hash(h), err
}

// inclusion returns the proof that the entry numbered seq is in the tree: its siblings from the leaf up.
func (p *prover) inclusionOf(seq uint64) ([]audit.Hash, error) {
	return p.proveInclusion(seq, p.hashReader())
}

// consistency returns the proof that the tree begins with the tree over the first old entries.
func (p *prover) consistencyWith(old uint64) ([]audit.Hash, error) {
	return p.proveConsistency(old, p.hashReader())
}

func (p *prover) proveInclusion(seq uint64, r tlog.HashReader) ([]audit.Hash, error) {
	if seq == 0 || seq > p.size {
		return nil, fmt.Errorf("a tree of %d entries does not hold entry %d", p.size, seq)
	}
	proof, err := tlog.ProveRecord(int64(p.size), int64(seq-1), r)
	return auditHashes(proof), err
}

func (p *prover) proveConsistency(old uint64, r tlog.HashReader) ([]audit.Hash, error) {
	if old > p.size {
		return nil, fmt.Errorf("a tree of %d entries does not begin with %d", p.size, old)
	}
	if old == 0 || old == p.size {
		return nil, nil // RFC 6962, section 2.1.2: there is nothing to prove
	}
	proof, err := tlog.ProveTree(int64(p.size), int64(old), r)
	return auditHashes(proof), err
}

func auditHashes(list []tlog.Hash) (out []audit.Hash) {
	for _, h := range list {
		out = append(out, audit.Hash(h))
	}
	return out
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
func (p *prover) recordingReader() tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		for _, i := range indexes {
			p.want[i] = tlog.Hash{}
		}
		return nil, errNoted
	})
}

// hashReader returns a reader of the collected hashes.
func (p *prover) hashReader() tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) (list []tlog.Hash, err error) {
		for _, i := range indexes {
			if p.want[i] == (tlog.Hash{}) {
				return nil, errors.New("a proof must be requested before any leaf is added")
			}
			list = append(list, p.want[i])
		}
		return list, nil
	})
}

// findEntries returns, in ascending order, the numbers of the first size entries that belong to the portable receipt of
// id, and the last of them that is its intent or outcome.
func (n *Notary) findEntries(ctx context.Context, id bailey.ReceiptID,
	size uint64) (seqs []uint64, last uint64, err error) {
	plans := make(map[string]uint64)
	for p, err := range n.entries(ctx) {
		if err != nil {
			return nil, 0, err
		}
		if p.Seq > size {
			break
		}
		switch {
		case p.Kind == audit.KindKey:
			seqs = append(seqs, p.Seq)
		case p.Kind == audit.KindPlan:
			if plan, err := audit.ParsePlan(p.Data); err == nil {
				plans[plan.Digest] = p.Seq
			}
		case p.Receipt == id:
			seqs, last = append(seqs, p.Seq), p.Seq
			if at := plans[p.Plan]; at != 0 {
				seqs = append(seqs, at)
			}
		}
	}
	if last == 0 {
		return nil, 0, bailey.NotFound.Errorf("run bailey receipts list to show them", "there is no receipt %.80s", id)
	}
	slices.Sort(seqs)
	return seqs, last, nil
}

// proveEntries returns the portable receipt of the entries numbered seqs, which must be ascending, under a signed
// checkpoint of the log. It does not verify the signature.
func (n *Notary) proveEntries(ctx context.Context, signed []byte, seqs []uint64) (r audit.Receipt, err error) {
	c, err := audit.ReadCheckpoint(signed)
	if err != nil {
		return r, err
	}
	p, err := newProver(c.Size)
	if err != nil {
		return r, err
	}
	for _, seq := range seqs {
		if err := p.wantInclusion(seq); err != nil {
			return r, err
		}
	}
	r.Checkpoint = signed
	for e, err := range n.entries(ctx) {
		if err != nil {
			return r, err
		}
		if e.Seq > c.Size {
			break
		}
		p.addLeaf(e.Leaf)
		if slices.Contains(seqs, e.Seq) {
			line, _, err := audit.Append(e.Prev, e.Entry) // its one encoding
			if err != nil {
				return r, err
			}
			r.Entries = append(r.Entries, audit.Proven{Seq: e.Seq, Line: line})
		}
	}
	if root, err := p.treeRoot(); err != nil || root != c.Root {
		return r, &audit.Bad{Entry: c.Size, Reason: audit.Forked,
			Detail: fmt.Sprintf("the first %d entries are not the ones that were signed", c.Size)}
	}
	for i, e := range r.Entries {
		if r.Entries[i].Proof, err = p.inclusionOf(e.Seq); err != nil {
			return r, err
		}
	}
	return r, nil
}
