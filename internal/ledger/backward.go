package ledger

import (
	"errors"
	"fmt"
	"io"
	"os"

	"bailey"
	"bailey/audit"
)

// Recaller is shown a ledger from its end: a segment at a time, the newest first, and of each the entries in their order.
// What it was shown counts once the reading returned without error: that a segment ends where the next begins shows last.
type Recaller interface {
	Read(e audit.Entry)
	// Enough is asked behind each segment. Who has enough is shown no older one.
	Enough() bool
}

// Backward shows r the ledger in dir, which nobody writes to. A torn tail, which opening would cut off, is passed over.
func Backward(dir string, r Recaller) error {
	d, err := openDir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.segments()
	if err != nil {
		return err
	}
	return d.backward(names, nil, r)
}

// Before shows r the segments before the one that opening verified, which [Config.Read] was shown then.
func (l *Log) Before(r Recaller) error { return l.dir.backward(l.before.names, &l.before.end, r) }

// past is what stands before the segment that opening verified, and the head that it ends with.
type past struct {
	names []string
	end   audit.Head
}

// backward shows r the segments, the last of which ends with end: nil is not known.
func (d *directory) backward(names []string, end *audit.Head, r Recaller) error {
	for i := len(names) - 1; i >= 0; i-- {
		start, head, err := d.show(names[i], i > 0, r)
		var bad *audit.Bad
		torn := errors.As(err, &bad) && bad.Reason == audit.Torn && end == nil
		switch {
		case bad != nil && !torn:
			bad.Segment = i + 1
			return damaged(d.path, bad)
		case bad == nil && err != nil:
			return err
		case end != nil && head != *end:
			return damaged(d.path, &audit.Bad{Segment: i + 2, Entry: end.Seq + 1, Reason: audit.Started,
				Detail: fmt.Sprintf("it begins after entry %d, %s, and the segment before it ends with entry %d, %s", end.Seq, end.Hash, head.Seq, head.Hash)})
		}
		if r.Enough() {
			return nil
		}
		end = new(start.After())
	}
	return nil
}

// show shows r one segment. carries tells that it is not the ledger's first.
func (d *directory) show(name string, carries bool, r Recaller) (start audit.Start, head audit.Head, err error) {
	f, err := d.open(name, os.O_RDONLY)
	if err != nil {
		return start, head, err
	}
	defer f.Close()
	if carries {
		if start, err = firstOf(f); err != nil {
			return start, head, &audit.Bad{Reason: audit.Started, Detail: err.Error()}
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return start, head, unavailable(cure(err), err, "reading %s", f.Name())
		}
	}
	head = start.After()
	for e, err := range audit.Scan(f, head) {
		if err != nil {
			return start, head, err
		}
		r.Read(e)
		head = audit.Head{Seq: e.Seq, Hash: e.Hash}
	}
	return start, head, nil
}

// Standing is what a look at the ledger found: as much as opening verifies.
type Standing struct {
	Bad      *audit.Bad // what is wrong; nil is nothing
	Segments int
	Entries  uint64 // that are durable
	Verified uint64 // of them, those that were read and are in order: the last segment's
	Open     int    // receipts
	Head     audit.Hash
}

// Stand verifies, of what is durable, as much as opening does: the last segment from its first line on, and of each before
// it that it ends where the next begins.
func (l *Log) Stand() (s Standing, err error) {
	at := l.durable.Load()
	names, err := l.dir.segments()
	if err != nil {
		return s, err
	}
	if s.Segments, s.Entries = at.segment, at.tree.Size(); len(names) < at.segment {
		return s, &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("the ledger in %s has lost %s", l.dir.path, segmentFile(at.segment)),
			Hint: "find out who removed it; bailey audit verify shows what is left"}
	}
	start, err := l.dir.links(names[:at.segment])
	if errors.As(err, &s.Bad) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	state, err := start.State()
	if err != nil {
		return s, err
	}
	s.Bad, err = l.dir.stands(names[at.segment-1], at, &state)
	s.Verified, s.Open, s.Head = state.Head.Seq-start.Size, state.Pairs.Len(), state.Head.Hash
	return s, err
}

// stands verifies a segment up to a place in it, as state goes on.
func (d *directory) stands(name string, to *position, state *audit.State) (bad *audit.Bad, err error) {
	f, err := d.open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	begins := to.segment > 1
	for e, err := range audit.Scan(io.LimitReader(f, to.bytes), state.Head) {
		if errors.As(err, &bad) {
			bad.Segment = to.segment
			return bad, nil
		}
		if err != nil {
			return nil, err
		}
		if bad = state.Add(e, begins); bad != nil {
			bad.Segment = to.segment
			return bad, nil
		}
		begins = false
	}
	if root := to.tree.Root(); state.Tree.Root() != root {
		return &audit.Bad{Segment: to.segment, Entry: state.Head.Seq + 1, Reason: audit.Truncated,
			Detail: fmt.Sprintf("it does not hold the %d entries that were written", to.tree.Size())}, nil
	}
	return nil, nil
}
