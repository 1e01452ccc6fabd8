package ledger

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"bailey/audit"
	"bailey/internal/receipts"
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

// linePlace is the place of a line in the ledger, with the hash before it and its own hash.
type linePlace struct {
	seq        uint64
	segment    int // counted from 1
	offset     int64
	length     int
	prev, hash audit.Hash
}

// receiptLines holds the places of the two lines of a receipt. If the receipt is open, outcome is zero.
type receiptLines struct{ intent, outcome linePlace }

func (p *receiptLines) scanRow(rows *sql.Rows) error {
	var segment, offset, length sql.NullInt64
	var prev, hash, oprev, ohash sql.RawBytes
	i, o := &p.intent, &p.outcome
	if err := rows.Scan(&i.seq, &i.segment, &i.offset, &i.length, &prev, &hash, &o.seq, &segment, &offset, &length,
		&oprev, &ohash); err != nil {
		return err
	}
	o.segment, o.offset, o.length = int(segment.Int64), offset.Int64, int(length.Int64)
	copy(i.prev[:], prev)
	copy(i.hash[:], hash)
	copy(o.prev[:], oprev)
	copy(o.hash[:], ohash)
	return nil
}

// lineReader reads lines of the ledger at given places.
type lineReader struct {
	dir   *directory
	files map[int]*os.File
	buf   *bufio.Reader // as large as [audit.Scan] needs
}

func (s *lineReader) close() {
	for _, f := range s.files {
		f.Close()
	}
}

// readEntry reads one line and checks it against the chain and against the index.
func (s *lineReader) readEntry(l linePlace) (audit.Entry, error) {
	f, err := s.openSegment(l.segment)
	if err != nil {
		return audit.Entry{}, err
	}
	return entryAt(f, s.buf, l)
}

func (s *lineReader) openSegment(segment int) (*os.File, error) {
	if f := s.files[segment]; f != nil {
		return f, nil
	}
	f, err := s.dir.openRegular(fmt.Sprintf("%08d.jsonl", segment), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, staleError(fmt.Sprintf("the ledger has no segment %d", segment))
	}
	if err != nil {
		return nil, err
	}
	if s.files == nil {
		s.files, s.buf = map[int]*os.File{}, bufio.NewReaderSize(nil, 2*audit.MaxLine)
	}
	s.files[segment] = f
	return f, nil
}

// readRecord reads a receipt.
func (s *lineReader) readRecord(p receiptLines) (receipts.Record, error) {
	var outcome audit.Entry
	intent, err := s.readEntry(p.intent)
	if err == nil && p.outcome.seq > 0 {
		outcome, err = s.readEntry(p.outcome)
	}
	if err != nil {
		return receipts.Record{}, err
	}
	if intent.Kind != audit.KindIntent || p.outcome.seq > 0 &&
		(outcome.Kind != audit.KindOutcome || outcome.Receipt != intent.Receipt) {
		return receipts.Record{}, staleError(fmt.Sprintf("its entries %d and %d are no receipt", p.intent.seq,
			p.outcome.seq))
	}
	return receipts.NewRecord(intent, outcome)
}
