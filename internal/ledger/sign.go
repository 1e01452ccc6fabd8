package ledger

import (
	"context"
	"io"
	"os"
	"slices"

	"bailey"
	"bailey/audit"
)

// Sign signs the current content of the log, keeps the checkpoint in place of the one signed last, and returns it. If
// nothing was added since, Sign returns the kept checkpoint with its witness signatures.
func (n *Notary) Sign(ctx context.Context) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key, err := n.ensureKey(ctx)
	if err != nil {
		return nil, err
	}
	private, err := n.c.Keys.Find(key.Public())
	if err != nil {
		return nil, err
	}
	by, err := audit.NewSigner(n.name, private)
	if err != nil {
		return nil, err
	}
	last, err := n.lastCheckpoint()
	if err != nil {
		return nil, err
	}
	to := n.c.Log.durable.Load()
	now := audit.Checkpoint{Origin: n.name, Size: to.tree.Size(), Root: to.tree.Root()}
	if now == last {
		return n.newest, nil
	}
	proof, err := n.c.Log.proveExtends(last, to)
	if err != nil {
		return nil, err
	}
	signed, err := now.Sign(last, proof, by)
	if err != nil {
		return nil, err
	}
	// If it is not kept, the log could sign less after a crash than another party holds.
	if err := n.keepCheckpoint(signed); err != nil {
		return nil, err
	}
	return signed, nil
}

// lastCheckpoint returns the checkpoint that was signed last, or the zero Checkpoint. If the log's keys did not sign the kept
// checkpoint, last refuses it, because it could let the log sign less than before.
func (n *Notary) lastCheckpoint() (audit.Checkpoint, error) {
	if n.newest == nil {
		return audit.Checkpoint{}, nil
	}
	s, err := audit.Trust{Keys: n.keys.All()}.Open(n.newest)
	if err != nil {
		return s.Checkpoint, bailey.Conflict.Wrap(err, "the newest checkpoint is not signed by a key of this log",
			"restore it from where checkpoints are kept, after finding out who exchanged it")
	}
	return s.Checkpoint, nil
}

// Consistency returns the proof that a signed checkpoint begins with the log's first old entries.
func (n *Notary) Consistency(old uint64, signed []byte) ([]audit.Hash, error) {
	c, err := audit.ReadCheckpoint(signed)
	if err != nil {
		return nil, err
	}
	if old > c.Size {
		return nil, bailey.Invalid.Errorf("look at that number first: when somebody did see so many, the log was rolled back, and bailey audit verify --against what was seen shows it",
			"the checkpoint has %d entries, and %d are said to have been seen", c.Size, old)
	}
	proof, _, err := n.c.Log.proveConsistency(old, c.Size, n.c.Log.durable.Load())
	return proof, err
}

// proveExtends proves that the files up to a position extend last and match the tree in memory.
func (l *Log) proveExtends(last audit.Checkpoint, to *position) ([]audit.Hash, error) {
	if last == (audit.Checkpoint{}) {
		return nil, nil
	}
	if last.Size > to.tree.Size() {
		return nil, nil // Sign refuses this with its own error
	}
	proof, root, err := l.proveConsistency(last.Size, to.tree.Size(), to)
	if err == nil && root != to.tree.Root() {
		err = checkpointError(l.dir.path,
			audit.Bad{Within: to.tree.Size(), Reason: audit.Forked,
				Detail: "the files hold other entries than were written"})
	}
	return proof, err
}

// proveConsistency returns the proof from the first old entries to the first size entries, and the root over the latter.
func (l *Log) proveConsistency(old, size uint64, to *position) ([]audit.Hash, audit.Hash, error) {
	p, err := audit.NewProver(size)
	if err == nil {
		err = p.WantConsistency(old)
	}
	if err == nil {
		err = l.eachEntry(to, func(e audit.Entry) error { p.Add(e.Leaf); return nil })
	}
	if err != nil {
		return nil, audit.Hash{}, err
	}
	root, err := p.Root()
	if err != nil {
		return nil, root, err
	}
	proof, err := p.Consistency(old)
	return proof, root, err
}

// Prove returns the portable receipt of id under a kept checkpoint that covers it, preferably a cosigned one. If no
// kept checkpoint covers it, Prove signs one.
func (n *Notary) Prove(ctx context.Context, id bailey.ReceiptID) ([]byte, error) {
	last, err := n.lastOf(id)
	if err != nil {
		return nil, err
	}
	signed, err := n.findCovering(last)
	if err == nil && signed == nil {
		signed, err = n.Sign(ctx)
	}
	if err != nil {
		return nil, err
	}
	return n.proveReceipt(id, signed)
}

// lastOf returns the number of a receipt's last entry.
func (n *Notary) lastOf(id bailey.ReceiptID) (last uint64, err error) {
	err = n.c.Log.eachEntry(n.c.Log.durable.Load(), func(e audit.Entry) error {
		if e.Receipt == id && (e.Kind == audit.KindIntent || e.Kind == audit.KindOutcome) {
			last = e.Seq
		}
		return nil
	})
	if err == nil && last == 0 {
		err = bailey.NotFound.Errorf("bailey receipts list shows them", "there is no receipt %.80s", id)
	}
	return last, err
}

// findCovering returns the newest kept checkpoint that covers an entry, or nil. Cosigned checkpoints come first.
func (n *Notary) findCovering(seq uint64) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.loadKeys(); err != nil {
		return nil, err
	}
	list := [][]byte{n.cosigned, n.newest}
	if audit.Cosigned(n.newest) {
		slices.Reverse(list)
	}
	for _, signed := range list {
		if c, err := audit.ReadCheckpoint(signed); signed == nil || err == nil && c.Origin != n.name {
			continue // missing, or of a previous ledger
		}
		s, err := audit.Trust{Keys: n.keys.All()}.Open(signed)
		if err != nil {
			return nil, bailey.Conflict.Wrap(err, "a checkpoint that was kept is not signed by a key of this log",
				"restore it from where checkpoints are kept, after finding out who exchanged it")
		}
		if s.Size >= seq {
			return signed, nil
		}
	}
	return nil, nil
}

func (n *Notary) proveReceipt(id bailey.ReceiptID, signed []byte) ([]byte, error) {
	c, err := audit.ReadCheckpoint(signed)
	if err != nil {
		return nil, err
	}
	var seqs []uint64
	err = n.c.Log.withSegments(func(segments []io.Reader) (err error) {
		seqs, err = audit.Find(id, c.Size, segments...)
		return err
	})
	if err != nil {
		return nil, err
	}
	var r audit.Receipt
	err = n.c.Log.withSegments(func(segments []io.Reader) (err error) {
		r, err = audit.Prove(signed, seqs, segments...)
		return err
	})
	return r.Text(), err
}

// withSegments opens the segments again.
func (l *Log) withSegments(read func(segments []io.Reader) error) error {
	files, err := l.dir.openSegments()
	if err != nil {
		return err
	}
	defer closeAll(files)
	return read(upTo(files, l.durable.Load()))
}

// upTo limits the segments to a position.
func upTo(files []*os.File, at *position) []io.Reader {
	readers := make([]io.Reader, min(len(files), at.segment))
	for i := range readers {
		readers[i] = files[i]
		if i+1 == at.segment {
			readers[i] = io.LimitReader(files[i], at.bytes)
		}
	}
	return readers
}
