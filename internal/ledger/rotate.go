package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"bailey/audit"
)

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
		w.log.Warn("the ledger begins no new segment yet", "segment", w.name, "bytes", w.size, "err", err)
		return
	}
	w.open = 0 // the open receipts moved, and so did their space
	if err := w.closeSegment(); err != nil {
		w.log.Warn("closing a segment that is full", "segment", w.name, "err", err)
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
	start, err := audit.NewStart(c.head, c.tree, c.account.orderedIDs())
	if err != nil {
		return none(err)
	}
	data, err := json.Marshal(start)
	if err != nil {
		return none(err)
	}
	r, err := newRequest(audit.KindSegment, data)
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
	if err := w.dir.renameDurably(segmentTemp, next.name); err != nil {
		next.file.Close()
		if gone := w.dir.removeFile(segmentTemp); gone != nil { // it may have its name already
			w.stopWriting(errors.Join(err, gone))
		}
		return none(err)
	}
	return c, next, nil
}

// writeFirstLine writes a segment's first line into a file that has no name in the ledger yet.
func (w *writer) writeFirstLine(g *group) (err error) {
	if err := w.dir.removeFile(segmentTemp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if w.file, err = w.dir.openRegular(segmentTemp, os.O_RDWR|os.O_CREATE|os.O_EXCL); err != nil {
		return err
	}
	w.disk = w.wrap(segment{w.file})
	err = lockWhole(w.file)
	if err == nil {
		err = w.reserveSpace(g)
	}
	if err == nil {
		err = w.writeGroup(g)
	}
	if err != nil {
		w.file.Close()
		return errors.Join(err, w.dir.removeFile(segmentTemp))
	}
	return nil
}
