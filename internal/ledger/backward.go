package ledger

import (
	"errors"
	"fmt"
	"io"
	"os"

	"bailey"
	"bailey/audit"
)

// Recaller receives a ledger from its end: one segment at a time, the newest first, and the entries of each segment in
// their order. The entries must not be relied on before the reading returns without error, because only then is it
// known that each segment ends where the next one begins.
type Recaller interface {
	Read(e audit.Entry)
	// Enough is called after each segment. If it returns true, no older segment is read.
	Enough() bool
}

// Backward passes the ledger in dir to r. No process may write to the ledger. Backward skips a torn tail, which opening
// would cut off.
func Backward(dir string, r Recaller) error {
	d, err := openDir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.listSegments()
	if err != nil {
		return err
	}
	return d.readBackward(names, nil, r)
}

// Before passes to r the segments before the one that opening verified and passed to [Config.Read].
func (l *Log) Before(r Recaller) error { return l.dir.readBackward(l.before.names, &l.before.end, r) }

// olderSegments holds the segments before the one that opening verified, and the head at which they end.
type olderSegments struct {
	names []string
	end   audit.Head
}

// readBackward passes the segments to r. The last one must end with end; if end is nil, it is not known.
func (d *directory) readBackward(names []string, end *audit.Head, r Recaller) error {
	for i := len(names) - 1; i >= 0; i-- {
		start, head, err := d.replaySegment(names[i], i > 0, r)
		var bad *audit.Bad
		torn := errors.As(err, &bad) && bad.Reason == audit.Torn && end == nil
		switch {
		case bad != nil && !torn:
			bad.Segment = i + 1
			return damagedError(d.Path, bad)
		case bad == nil && err != nil:
			return err
		case end != nil && head != *end:
			return damagedError(d.Path, &audit.Bad{Segment: i + 2, Entry: end.Seq + 1, Reason: audit.Started,
				Detail: fmt.Sprintf("it begins after entry %d, %s, but the segment before it ends with entry %d, %s",
					end.Seq, end.Hash, head.Seq, head.Hash)})
		}
		if r.Enough() {
			return nil
		}
		end = new(start.After())
	}
	return nil
}

// replaySegment passes one segment to r. carries is set if the segment is not the ledger's first.
func (d *directory) replaySegment(name string, carries bool,
	r Recaller) (start audit.Start, head audit.Head, err error) {
	f, err := d.OpenRegular(name, os.O_RDONLY)
	if err != nil {
		return start, head, err
	}
	defer f.Close()
	if carries {
		if start, err = firstOf(f); err != nil {
			return start, head, &audit.Bad{Reason: audit.Started, Detail: err.Error()}
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

// Standing is the result of [Log.Stand].
type Standing struct {
	Bad      *audit.Bad // the fault found, or nil
	Segments int
	Entries  uint64 // durable entries
	Verified uint64 // the entries of the last segment, which were read and are in order
	Open     int    // open receipts
	Head     audit.Hash
}

// Stand verifies as much of the durable ledger as opening does: the last segment from its first line on, and that each
// segment before it ends where the next one begins.
func (l *Log) Stand() (s Standing, err error) {
	at := l.Durable()
	names, err := l.dir.listSegments()
	if err != nil {
		return s, err
	}
	if s.Segments, s.Entries = at.Segment, at.Tree.Size(); len(names) < at.Segment {
		return s, bailey.Conflict.Errorf("find out who removed it; bailey audit verify shows what is left",
			"the ledger in %s has lost %s", l.dir.Path, segmentFile(at.Segment))
	}
	start, err := l.dir.checkLinks(names[:at.Segment])
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
	s.Bad, err = l.dir.verifySegment(names[at.Segment-1], at, &state)
	s.Verified, s.Open, s.Head = state.Head.Seq-start.Size, state.Pairs.Len(), state.Head.Hash
	return s, err
}

// verifySegment verifies a segment up to a position, beginning with state.
func (d *directory) verifySegment(name string, to Position, state *audit.State) (bad *audit.Bad, err error) {
	f, err := d.OpenRegular(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	err = addEntries(io.LimitReader(f, to.Bytes), to.Segment, state, func(audit.Entry) error { return nil })
	if errors.As(err, &bad) {
		return bad, nil
	}
	if err != nil {
		return nil, err
	}
	if root := to.Tree.Root(); state.Tree.Root() != root {
		return &audit.Bad{Segment: to.Segment, Entry: state.Head.Seq + 1, Reason: audit.Truncated,
			Detail: fmt.Sprintf("it does not contain the %d entries that were written", to.Tree.Size())}, nil
	}
	return nil, nil
}
