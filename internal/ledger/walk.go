package ledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"bailey/audit"
)

// placedEntry is an entry with the place of its line. before is the number of bytes before its segment.
type placedEntry struct {
	audit.Entry
	at     linePlace
	before int64
}

// endOffset returns how many bytes of the ledger were read up to the end of the entry.
func (p placedEntry) endOffset() int64 { return p.before + p.at.offset + int64(p.at.length) }

// walkLedger yields the entries of the ledger in dir, each checked against the format and the chain. segments must be in
// order. It ends at the first error, or when ctx ends.
func walkLedger(ctx context.Context, dir string, segments []io.Reader) iter.Seq2[placedEntry, error] {
	return func(yield func(placedEntry, error) bool) {
		var head audit.Head
		var before int64
		for i, r := range segments {
			ends, from := &lineEndReader{r: r}, head
			for e, err := range audit.Scan(ends, head) {
				if err == nil && e.Seq%256 == 0 {
					err = context.Cause(ctx)
				}
				if err != nil {
					yield(placedEntry{}, segmentReadError(dir, i+1, err))
					return
				}
				begin, end := ends.nextLine()
				head = audit.Head{Seq: e.Seq, Hash: e.Hash}
				if !yield(placedEntry{e, linePlace{e.Seq, i + 1, begin, int(end - begin), e.Prev, e.Hash}, before},
					nil) {
					return
				}
			}
			if i > 0 && head == from {
				yield(placedEntry{},
					damagedError(dir,
						&audit.Bad{Segment: i + 1, Entry: head.Seq + 1, Reason: audit.Started,
							Detail: "the segment holds no entry"}))
				return
			}
			before += ends.last
		}
	}
}

// segmentReadError returns the error that ended a walk in a segment.
func segmentReadError(dir string, segment int, err error) error {
	var bad *audit.Bad
	if errors.As(err, &bad) {
		bad.Segment = segment
		return damagedError(dir, bad)
	}
	return fmt.Errorf("reading the ledger: %w", err)
}

// entryAt reads one line of a segment and checks it against the chain and against l. If it does not match, the error is
// stale.
func entryAt(f io.ReaderAt, buf *bufio.Reader, l linePlace) (audit.Entry, error) {
	if l.offset < 0 || l.length <= 0 || l.length > audit.MaxLine {
		return audit.Entry{}, staleError(fmt.Sprintf("its place of entry %d is none", l.seq))
	}
	buf.Reset(io.NewSectionReader(f, l.offset, int64(l.length)))
	for e, err := range audit.Scan(buf, audit.Head{Seq: l.seq - 1, Hash: l.prev}) {
		var bad *audit.Bad
		switch {
		case errors.As(err, &bad):
			return e, staleError(fmt.Sprintf("where it has entry %d the ledger has something else (%s)", l.seq,
				bad.Reason))
		case err != nil:
			return e, fmt.Errorf("reading segment %d of the ledger: %w", l.segment, err)
		case e.Hash != l.hash:
			return e, staleError(fmt.Sprintf("its entry %d is not the one that the ledger has", l.seq))
		}
		return e, nil
	}
	return audit.Entry{}, staleError(fmt.Sprintf("the ledger ends before entry %d", l.seq))
}
