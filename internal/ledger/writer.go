package ledger

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"syscall"

	"bailey/audit"
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
		if err := w.dir.checkSameFile(w.file, w.name, w.size); err != nil {
			w.stopWriting(err)
		}
	}
}

// durableEnd returns the durable end.
func (w *writer) durableEnd() *position { return &position{w.number, w.size, w.end.tree} }

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
	return unavailableError(diskErrorHint(err), err, "the ledger has no space for this call and its outcome")
}

// checkFreeSpace returns an error if the disk cannot take so many more bytes and keep its reserve.
func (w *writer) checkFreeSpace(bytes int64) error {
	free, err := w.disk.Free()
	if err != nil {
		return unavailableError(diskErrorHint(err), err, "how much space the ledger's disk has is not known")
	}
	if free < uint64(w.keep+bytes) {
		return unavailableError(diskErrorHint(syscall.ENOSPC), syscall.ENOSPC,
			"the ledger's disk has %d MiB left, and %d are kept in reserve", free>>20, w.keep>>20)
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
		return unavailableError(diskErrorHint(err), err, "the ledger could not be written")
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
		w.log.Error("outcomes of open calls may find no space", "open", w.open, "err", err)
	}
}

// stopWriting ends all writing, because the content of the disk is unknown.
func (w *writer) stopWriting(err error) {
	const hint = "look at the disk and the kernel's log, then end the gateway (bailey gateway stop): the next call starts one that verifies the ledger and repairs its tail"
	w.dead = unavailableError(hint, err, "the ledger stopped: what its disk holds is not known")
	w.log.Error("the ledger stopped", "entry", w.end.head.Seq, "bytes", w.size, "err", err)
}

// closeSegment releases reserved space that is not needed and closes the segment.
func (w *writer) closeSegment() error {
	if w.file == nil {
		return nil
	}
	if w.dead == nil && w.open == 0 && w.reserved > w.size && w.dir.checkSameFile(w.file, w.name, w.size) == nil {
		if err := w.disk.Truncate(w.size); err != nil {
			w.log.Warn("reserved space stays with the ledger", "bytes", w.reserved-w.size, "err", err)
		}
	}
	return w.file.Close()
}
