package ledger

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"

	"bailey/audit"
	"bailey/internal/receipts"
)

// Position is a place between two entries of the ledger: a segment, counted from 1, an offset in it in bytes, and the
// tree over the entries before.
type Position struct {
	Segment int
	Bytes   int64
	Tree    audit.Tree
}

// Durable returns the position after the last durable entry.
func (l *Log) Durable() Position { return *l.durable.Load() }

// Place is the place of a line in the ledger, with the hash before it and its own hash. The zero Place is before the
// first line.
type Place struct {
	Seq        uint64
	Segment    int // counted from 1
	Offset     int64
	Length     int
	Prev, Hash audit.Hash
}

func (p Place) end() int64 { return p.Offset + int64(p.Length) }

// Placed is an entry with the place of its line.
type Placed struct {
	audit.Entry
	At     Place
	before int64 // bytes before its segment
}

// endOffset returns how many bytes of the ledger were read up to the end of the entry.
func (p Placed) endOffset() int64 { return p.before + p.At.end() }

// Entries yields the entries after a place up to a position, each checked against the format and the chain. It ends at
// the first error, or when ctx ends.
func (l *Log) Entries(ctx context.Context, after Place, to Position) iter.Seq2[Placed, error] {
	return func(yield func(Placed, error) bool) {
		files, err := l.dir.openSegments()
		if err != nil {
			yield(Placed{}, err)
			return
		}
		defer closeAll(files)
		walkLedger(ctx, l.dir.Path, upTo(files, to), after)(yield)
	}
}

// openSegments opens every segment for reading. It fails if the directory holds no segment.
func (d *directory) openSegments() (files []*os.File, err error) {
	names, err := d.listSegments()
	if err == nil && len(names) == 0 {
		err = noLedgerError(d.Path)
	}
	for _, name := range names {
		f, oerr := d.OpenRegular(name, os.O_RDONLY)
		if oerr != nil {
			closeAll(files)
			return nil, oerr
		}
		files = append(files, f)
	}
	return files, err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// upTo limits the segments to a position.
func upTo(files []*os.File, at Position) (segments []io.ReadSeeker) {
	for i, f := range files[:min(len(files), at.Segment)] {
		end := int64(math.MaxInt64)
		if i+1 == at.Segment {
			end = at.Bytes
		}
		segments = append(segments, io.NewSectionReader(f, 0, end))
	}
	return segments
}

// walkLedger yields the entries of the ledger in dir after a place. segments must be all of the ledger's, in order.
func walkLedger(ctx context.Context, dir string, segments []io.ReadSeeker, after Place) iter.Seq2[Placed, error] {
	return func(yield func(Placed, error) bool) {
		head := audit.Head{Seq: after.Seq, Hash: after.Hash}
		var before int64
		for i := max(after.Segment, 1) - 1; i < len(segments); i++ {
			begin := int64(0)
			if i+1 == after.Segment {
				begin = after.end()
			}
			_, err := segments[i].Seek(begin, io.SeekStart)
			ends, from := &lineEndReader{r: segments[i], read: begin, last: begin}, head
			for e, err := range afterError(err, audit.Scan(ends, head)) {
				if err == nil && e.Seq%256 == 0 {
					err = context.Cause(ctx)
				}
				if err != nil {
					yield(Placed{}, segmentReadError(dir, i+1, err))
					return
				}
				begin, end := ends.nextLine()
				head = audit.Head{Seq: e.Seq, Hash: e.Hash}
				if !yield(Placed{e, Place{e.Seq, i + 1, begin, int(end - begin), e.Prev, e.Hash}, before}, nil) {
					return
				}
			}
			if i > 0 && begin == 0 && head == from {
				yield(Placed{}, damagedError(dir, &audit.Bad{Segment: i + 1, Entry: head.Seq + 1,
					Reason: audit.Started, Detail: "the segment has no entry"}))
				return
			}
			before += ends.last
		}
	}
}

// afterError yields err, or the entries if err is nil.
func afterError(err error, entries iter.Seq2[audit.Entry, error]) iter.Seq2[audit.Entry, error] {
	if err == nil {
		return entries
	}
	return func(yield func(audit.Entry, error) bool) { yield(audit.Entry{}, err) }
}

// segmentReadError returns the error that ended a walk in a segment.
func segmentReadError(dir string, segment int, err error) error {
	var bad *audit.Bad
	if errors.As(err, &bad) {
		bad.Segment = segment
		return damagedError(dir, bad)
	}
	return fmt.Errorf("cannot read the ledger: %w", err)
}

// lineEndReader passes a segment on and records where its lines end, because a scan reads ahead of the entries that it
// yields.
type lineEndReader struct {
	r     io.Reader
	read  int64 // offset of r
	last  int64 // the end of the line that next returned last
	queue []int64
}

func (s *lineEndReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	for i := 0; i < n; {
		end := bytes.IndexByte(p[i:n], '\n')
		if end < 0 {
			break
		}
		i += end + 1
		s.queue = append(s.queue, s.read+int64(i))
	}
	s.read += int64(n)
	return n, err
}

// nextLine returns where the next line begins and ends. The line must have been read.
func (s *lineEndReader) nextLine() (begin, end int64) {
	begin, end = s.last, s.queue[0]
	s.last, s.queue = end, s.queue[1:]
	return begin, end
}

// Misplaced is the error for a place at which the ledger does not hold that entry.
type Misplaced string

func (m Misplaced) Error() string { return string(m) }

// entryAt reads one line of a segment and checks it against the chain and against l. If it does not match, the error is
// [Misplaced].
func entryAt(f io.ReaderAt, buf *bufio.Reader, l Place) (audit.Entry, error) {
	if l.Offset < 0 || l.Length <= 0 || l.Length > audit.MaxLine {
		return audit.Entry{}, Misplaced(fmt.Sprintf("its position of entry %d is invalid", l.Seq))
	}
	buf.Reset(io.NewSectionReader(f, l.Offset, int64(l.Length)))
	for e, err := range audit.Scan(buf, audit.Head{Seq: l.Seq - 1, Hash: l.Prev}) {
		var bad *audit.Bad
		switch {
		case errors.As(err, &bad):
			return e, Misplaced(fmt.Sprintf("at its position of entry %d the ledger has something else (%s)", l.Seq,
				bad.Reason))
		case err != nil:
			return e, fmt.Errorf("cannot read segment %d of the ledger: %w", l.Segment, err)
		case e.Hash != l.Hash:
			return e, Misplaced(fmt.Sprintf("its entry %d differs from that of the ledger", l.Seq))
		}
		return e, nil
	}
	return audit.Entry{}, Misplaced(fmt.Sprintf("the ledger ends before entry %d", l.Seq))
}

// Lines reads lines of the ledger at given places. It is for one goroutine.
type Lines struct {
	dir   *directory
	files map[int]*os.File
	buf   *bufio.Reader // as large as [audit.Scan] needs
}

// Lines returns a reader of lines. It opens no file yet.
func (l *Log) Lines() *Lines { return &Lines{dir: l.dir} }

// Close closes the files.
func (s *Lines) Close() {
	for _, f := range s.files {
		f.Close()
	}
}

// Entry reads one line and checks it against the chain. If the ledger does not hold that line there, the error is
// [Misplaced].
func (s *Lines) Entry(at Place) (audit.Entry, error) {
	f, err := s.openSegment(at.Segment)
	if err != nil {
		return audit.Entry{}, err
	}
	return entryAt(f, s.buf, at)
}

func (s *Lines) openSegment(segment int) (*os.File, error) {
	if f := s.files[segment]; f != nil {
		return f, nil
	}
	f, err := s.dir.OpenRegular(segmentFile(segment), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Misplaced(fmt.Sprintf("the ledger has no segment %d", segment))
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

// Receipt reads a receipt. If the receipt is open, outcome is the zero Place.
func (s *Lines) Receipt(intent, outcome Place) (receipts.Record, error) {
	var last audit.Entry
	first, err := s.Entry(intent)
	if err == nil && outcome.Seq > 0 {
		last, err = s.Entry(outcome)
	}
	if err != nil {
		return receipts.Record{}, err
	}
	if first.Kind != audit.KindIntent || outcome.Seq > 0 &&
		(last.Kind != audit.KindOutcome || last.Receipt != first.Receipt) {
		return receipts.Record{}, Misplaced(fmt.Sprintf("its entries %d and %d are not a receipt", intent.Seq, outcome.Seq))
	}
	return receipts.NewRecord(first, last)
}
