package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"bailey"
	"bailey/audit"
)

// checkpointGuard is the checkpoint that was signed last. The ledger is compared with it when it is opened. The zero pledge
// demands nothing.
type checkpointGuard struct {
	audit.Checkpoint
	root audit.Hash // root over that many entries; zero until they were read
}

// recordRoot records the root when the tree reaches the checkpoint's size.
func (h *checkpointGuard) recordRoot(t *audit.Tree) {
	if h.Size > 0 && t.Size() == h.Size {
		h.root = t.Root()
	}
}

// readPledge reads the checkpoint of a configuration. It does not verify the signature: a process that can write the
// file can also remove it. The content must hold nevertheless.
func readPledge(signed []byte) (h checkpointGuard, err error) {
	if signed == nil {
		return h, nil
	}
	if h.Checkpoint, err = audit.ReadCheckpoint(signed); err != nil {
		err = bailey.Conflict.Wrap(err, "the newest checkpoint of the ledger is malformed",
			"restore it from where checkpoints are kept, or move it aside after bailey audit verify --against one of those")
	}
	return h, err
}

// verifyCheckpoint returns an error if the ledger, in order up to head, is not the one that was signed. It must be called before
// any repair.
func (l *Log) verifyCheckpoint(h *checkpointGuard, head audit.Head, names []string) error {
	if h.Checkpoint == (audit.Checkpoint{}) {
		return nil
	}
	name, err := l.dir.readLedgerName(names[0])
	switch {
	case err != nil:
		return err
	case name != h.Origin:
		return l.Disagrees(audit.Bad{Entry: 1, Reason: audit.Replaced,
			Detail: fmt.Sprintf("this is %s, but the newest checkpoint is of %s", name, h.Origin)})
	case head.Seq < h.Size:
		return l.Disagrees(audit.Bad{Entry: head.Seq + 1, Reason: audit.Truncated,
			Detail: fmt.Sprintf("%d entries were signed, but %d are left: it was cut, or an old copy restored", h.Size,
				head.Seq)})
	}
	if h.root == (audit.Hash{}) {
		if err := l.dir.rootOf(h, names); err != nil {
			return err
		}
	}
	if h.root != h.Root {
		return l.Disagrees(audit.Bad{Within: h.Size, Reason: audit.Forked,
			Detail: fmt.Sprintf("the first %d entries are not the ones that were signed", h.Size)})
	}
	return nil
}

// Disagrees returns the error for a ledger that contradicts its newest checkpoint.
func (l *Log) Disagrees(bad audit.Bad) error {
	return bailey.Conflict.Wrap(&bad, "the ledger in "+l.dir.Path+" does not agree with its newest checkpoint",
		"keep it as evidence and restore the ledger that was signed; to start a new one, move the ledger and all its checkpoints aside")
}

// readLedgerName returns the ledger's name from its genesis.
func (d *directory) readLedgerName(first string) (string, error) {
	f, err := d.OpenRegular(first, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for e, err := range audit.Scan(f, audit.Head{}) {
		var g audit.Genesis
		if err == nil {
			err = json.Unmarshal(e.Data, &g)
		}
		return g.Name(), err
	}
	return "", errors.New(first + " has no entry")
}

// rootOf reads the segment, before the last, in which the tree reaches the checkpoint's size.
func (d *directory) rootOf(h *checkpointGuard, names []string) error {
	for i := len(names) - 1; i >= 0; i-- {
		past, err := d.readToCheckpoint(names[i], i > 0, h)
		if err != nil || past {
			return err
		}
	}
	return nil
}

// readToCheckpoint reads a segment up to the checkpoint's size, unless the segment begins after it.
func (d *directory) readToCheckpoint(name string, carries bool, h *checkpointGuard) (past bool, err error) {
	f, err := d.OpenRegular(name, os.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var start audit.Start
	if carries {
		if start, err = firstOf(f); err != nil || start.Size > h.Size {
			return false, err
		}
	}
	tree, err := start.Tree()
	if err != nil {
		return false, err
	}
	h.recordRoot(&tree)
	for e, err := range audit.Scan(f, start.After()) {
		if err != nil || tree.Size() >= h.Size {
			return true, err
		}
		tree.Add(e.Leaf)
		h.recordRoot(&tree)
	}
	return true, nil
}
