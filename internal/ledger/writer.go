package ledger

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"syscall"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger/owned"
)

// ahead is how much more than needed is reserved at once, in bytes, if the disk has it. A call then seldom waits for
// fallocate.
const ahead = 1 << 20

// reserveBytes must stay free on the disk, unless the configuration says otherwise.
const reserveBytes = 64 << 20

// slot is the space in bytes that an open intent keeps reserved: for its outcome, and for a plan that may precede it.
const slot = 2 * audit.MaxLine

// writer appends to the last segment. One goroutine uses it.
//
// Invariants between groups: the segment's length is size, and all of it is durable; the bytes up to reserved are
// allocated, at least one slot after size for each open receipt. If a write fails and its reservation cannot be
// renewed, the second invariant is broken, and no intent is accepted until it is renewed.
type writer struct {
	dir      *directory
	wrap     func(Disk) Disk
	log      *slog.Logger
	bound    int64 // the size at which a segment is full
	keep     int64 // bytes that must stay free on the disk
	number   int   // of the segment
	name     string
	file     *os.File
	disk     Disk
	full     int64 // the size at which the next segment must begin
	size     int64
	reserved int64
	end      tip   // end of the durable part
	open     int   // durable intents without a durable outcome
	dead     error // why no more can be written
}

// checkSegment checks that the segment is still ours.
func (w *writer) checkSegment() {
	if w.dead == nil {
		if err := w.dir.CheckSame(w.file, w.name, w.size); err != nil {
			w.stopWriting(err)
		}
	}
}

// durableEnd returns the durable end.
func (w *writer) durableEnd() *Position { return &Position{w.number, w.size, w.end.tree} }

// reserveSpace ensures that the group fits, and that every open intent has its slot after it.
func (w *writer) reserveSpace(g *group) error {
	need := w.size + int64(len(g.lines)) + int64(g.open)*slot
	from := max(w.reserved, w.size)
	if need <= from {
		return nil
	}
	err := w.disk.Reserve(from, need-from+ahead)
	if err == nil {
		w.reserved = need + ahead
		return nil
	}
	if err = w.disk.Reserve(from, need-from); err == nil {
		w.reserved = need
		return nil
	}
	return bailey.Unavailable.Wrapf(err, owned.DiskRemedy(err),
		"the ledger has no space for this call and its outcome")
}

// checkFreeSpace returns an error if the disk cannot take so many more bytes and keep its reserve.
func (w *writer) checkFreeSpace(bytes int64) error {
	free, err := w.disk.Free()
	if err != nil {
		return bailey.Unavailable.Wrapf(err, owned.DiskRemedy(err),
			"cannot determine the free space of the ledger's disk")
	}
	if free < uint64(w.keep+bytes) {
		return bailey.Unavailable.Wrapf(syscall.ENOSPC, owned.DiskRemedy(syscall.ENOSPC),
			"the ledger's disk has %d MiB left, but %d are reserved", free>>20, w.keep>>20)
	}
	return nil
}

// writeGroup writes a group after the durable part and syncs. After an error nothing of it is left, or w is dead.
func (w *writer) writeGroup(g *group) error {
	n, err := w.disk.WriteAt(g.lines, w.size)
	if err == nil && n < len(g.lines) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.rollbackWrite()
		return bailey.Unavailable.Wrapf(err, owned.DiskRemedy(err), "the ledger could not be written")
	}
	if err := w.disk.Sync(); err != nil {
		cut := w.disk.Truncate(w.size) // so that the next start does not find refused entries
		w.stopWriting(errors.Join(err, cut))
		return w.dead
	}
	w.size, w.end, w.open = w.size+int64(len(g.lines)), g.end, g.open
	return nil
}

// rollbackWrite removes the rest of a failed write, and reserves again the space that the truncation released.
func (w *writer) rollbackWrite() {
	if err := w.disk.Truncate(w.size); err != nil {
		w.stopWriting(err)
		return
	}
	if err := w.disk.Sync(); err != nil {
		w.stopWriting(err)
		return
	}
	w.reserved = w.size
	if err := w.reserveSpace(&group{open: w.open}); err != nil {
		w.log.Error("the outcomes of open calls may not fit on the disk", "open", w.open, "err", err)
	}
}

// stopWriting ends all writing, because the content of the disk is unknown.
func (w *writer) stopWriting(err error) {
	const hint = "check the disk and the kernel's log, then stop the gateway (bailey gateway stop): the next call starts one that verifies the ledger and repairs its tail"
	w.dead = bailey.Unavailable.Wrapf(err, hint, "the ledger has stopped: the state of its disk is unknown")
	w.log.Error("the ledger stopped", "entry", w.end.head.Seq, "bytes", w.size, "err", err)
}

// closeSegment releases reserved space that is not needed and closes the segment.
func (w *writer) closeSegment() error {
	if w.file == nil {
		return nil
	}
	if w.dead == nil && w.open == 0 && w.reserved > w.size && w.dir.CheckSame(w.file, w.name, w.size) == nil {
		if err := w.disk.Truncate(w.size); err != nil {
			w.log.Warn("cannot release reserved space of the ledger", "bytes", w.reserved-w.size, "err", err)
		}
	}
	return w.file.Close()
}

// segmentBytes is the size at which a segment is full, unless the configuration says otherwise.
const segmentBytes = 64 << 20

const segmentTemp = "segment.new" // until its first line is complete and on the disk

func segmentFile(number int) string { return fmt.Sprintf("%08d.jsonl", number) }

// rotateSegment begins a new segment if the current one is full. If this fails, the ledger stays as it was: the segment grows
// on, and the next attempt comes when it has grown by some more. So a rotation never causes a call to be refused.
// Waiting requests are chained again after the new segment's first line.
func (l *Log) rotateSegment() {
	w := &l.writer
	if w.dead != nil || w.size < w.full {
		return
	}
	w.full = w.size + min(w.bound, ahead)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chain.rewindTo(w.end, l.pending)
	defer l.chain.refillGroup(l.pending)
	chain, next, err := w.createSegment(l.chain)
	if err != nil {
		w.log.Warn("the ledger cannot start a new segment yet", "segment", w.name, "bytes", w.size, "err", err)
		return
	}
	w.open = 0 // the open receipts moved, and so did their space
	if err := w.closeSegment(); err != nil {
		w.log.Warn("cannot close a full segment", "segment", w.name, "err", err)
	}
	l.chain, *w = chain, next
	select {
	case l.rotated <- struct{}{}:
	default: // the previous signal was not received yet
	}
}

// Rotated returns a channel that signals that a segment began. All segments since the last signal count as one.
func (l *Log) Rotated() <-chan struct{} { return l.rotated }

// createSegment creates a segment that begins with its Start and holds the space for all open receipts. The segment gets its
// name when all of this is on the disk.
func (w *writer) createSegment(c chain) (chain, writer, error) {
	none := func(err error) (chain, writer, error) { return chain{}, writer{}, err }
	open := c.account.orderedIDs()
	if len(open) > audit.MaxCarried {
		return none(fmt.Errorf("a segment cannot begin with %d open receipts, more than %d", len(open), audit.MaxCarried))
	}
	r, err := encodeRequest(audit.KindSegment, newStart(c.head, c.tree, open), bailey.Internal)
	if err != nil {
		return none(err)
	}
	c.account, c.plans = c.account.copyOpen(), nil
	g := &group{open: w.open}
	if err := c.addRequest(g, r); err != nil {
		return none(err)
	}
	g.end = c.tip
	next := *w
	next.number, next.name = w.number+1, segmentFile(w.number+1)
	next.size, next.reserved, next.full = 0, 0, w.bound
	if err := next.writeFirstLine(g); err != nil {
		return none(err)
	}
	if err := w.dir.Rename(segmentTemp, next.name); err != nil {
		next.file.Close()
		if gone := w.dir.Remove(segmentTemp); gone != nil { // it may have its name already
			w.stopWriting(errors.Join(err, gone))
		}
		return none(err)
	}
	return c, next, nil
}

// newStart returns the Start of a segment that begins after head.
func newStart(head audit.Head, tree audit.Tree, open []bailey.ReceiptID) audit.Start {
	return audit.Start{Size: head.Seq, Head: head.Hash, Root: tree.Root(), Edge: tree.Edge(),
		Open: append([]bailey.ReceiptID{}, open...)} // null is not in its one encoding
}

// writeFirstLine writes a segment's first line into a file that has no name in the ledger yet.
func (w *writer) writeFirstLine(g *group) (err error) {
	if err := w.dir.Remove(segmentTemp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if w.file, err = w.dir.OpenRegular(segmentTemp, os.O_RDWR|os.O_CREATE|os.O_EXCL); err != nil {
		return err
	}
	w.disk = w.wrap(segment{w.file})
	err = owned.LockFile(w.file)
	if err == nil {
		err = w.reserveSpace(g)
	}
	if err == nil {
		err = w.writeGroup(g)
	}
	if err != nil {
		w.file.Close()
		return errors.Join(err, w.dir.Remove(segmentTemp))
	}
	return nil
}
