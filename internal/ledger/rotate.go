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

const segmentTemp = "segment.new" // until its first line is whole and on the disk

func segmentFile(number int) string { return fmt.Sprintf("%08d.jsonl", number) }

// rotate begins a new segment when the current one is full. Whatever keeps it from that leaves the ledger as
// it was: the segment grows on, and the next try comes when it has grown by some more. So no call is refused
// for the sake of a rotation.
func (w *writer) rotate() {
	if w.dead != nil || w.size < w.full {
		return
	}
	w.full = w.size + min(w.bound, ahead)
	next, err := w.next()
	if err != nil {
		w.log.Warn("the ledger begins no new segment yet", "segment", w.name, "bytes", w.size, "err", err)
		return
	}
	if next == nil {
		return
	}
	w.account = account{} // it moved, and so did the space of what is open
	if err := w.release(); err != nil {
		w.log.Warn("closing a segment that is full", "segment", w.name, "err", err)
	}
	*w = *next
}

// next makes a segment that begins with what stands before it and holds the space of all that is open, and
// gives it its name when all that is on the disk. It returns nothing when w is dead.
func (w *writer) next() (*writer, error) {
	start, err := audit.NewStart(w.head, w.tree, w.account.list())
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(start)
	if err != nil {
		return nil, err
	}
	next := *w
	next.number, next.name = w.number+1, segmentFile(w.number+1)
	next.size, next.reserved, next.full = 0, 0, w.bound
	next.plans, next.account = nil, w.account.carry()
	g := group{head: w.head, tree: w.tree, last: w.last}
	if err := next.entry(&g, audit.KindSegment, data); err != nil {
		return nil, err
	}
	if err := next.lay(g); err != nil {
		return nil, err
	}
	if err := w.dir.give(segmentTemp, next.name); err != nil {
		next.file.Close()
		if gone := w.dir.remove(segmentTemp); gone != nil { // it may have its name by now
			w.die(errors.Join(err, gone))
			return nil, nil
		}
		return nil, err
	}
	return &next, nil
}

// lay writes a segment's first line into a file that has no name in the ledger yet.
func (w *writer) lay(g group) (err error) {
	if err := w.dir.remove(segmentTemp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if w.file, err = w.dir.open(segmentTemp, os.O_RDWR|os.O_CREATE|os.O_EXCL); err != nil {
		return err
	}
	w.disk = w.wrap(segment{w.file})
	err = lockWhole(w.file)
	if err == nil {
		err = w.reserve(g)
	}
	if err == nil {
		err = w.put(g)
	}
	if err != nil {
		w.file.Close()
		return errors.Join(err, w.dir.remove(segmentTemp))
	}
	w.done(g)
	return nil
}
