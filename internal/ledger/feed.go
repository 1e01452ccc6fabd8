package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"bailey/audit"
)

// indexProgress states how far an index reaches. The index itself stores it.
type indexProgress struct {
	origin string
	at     linePlace // the last entry in the index; zero if it holds none
	high   int64     // the latest start so far, in microseconds since 1970
	late   int64     // the longest time by which a start was behind the latest before it
}

func (m *indexProgress) scanRow(row *sql.Row) error {
	var prev, hash []byte
	if err := row.Scan(&m.origin, &m.at.seq, &m.at.segment, &m.at.offset, &m.at.length, &prev, &hash, &m.high,
		&m.late); err != nil {
		return err
	}
	copy(m.at.prev[:], prev)
	copy(m.at.hash[:], hash)
	return nil
}

// errDisturbed ends a feed between two batches.
var errDisturbed = errors.New("the ledger is in use")

// catchUp feeds the index up to the durable end of the ledger. If still is set, it decides whether the next batch
// follows.
func (x *Index) catchUp(ctx context.Context, still func() bool) error {
	fed := *x.ledger.durable.Load()
	files, err := x.ledger.dir.openSegments()
	if err != nil {
		return err
	}
	defer closeAll(files)
	readers := x.ledger.upToDurable(files)
	if err := x.checkLastEntry(readers); err != nil {
		return err
	}
	b := batch{mark: x.mark}
	for i := max(b.mark.at.segment, 1); i <= len(readers); i++ {
		if err := x.feedSegment(ctx, i, readers[i-1], &b, still); err != nil {
			return err
		}
	}
	if err := x.commitBatch(ctx, &b); err != nil {
		return err
	}
	x.fed = fed
	return x.completeSchema(ctx)
}

// checkLastEntry checks that the last entry of the index is in the ledger at the same place. The log has verified its chain:
// if two ledgers share an entry of one hash, they share all entries before it.
func (x *Index) checkLastEntry(readers []io.Reader) error {
	at := x.mark.at
	if at.seq == 0 {
		return nil
	}
	if at.segment < 1 || at.segment > len(readers) {
		return staleError(fmt.Sprintf("it is ahead of the ledger, which has no segment %d", at.segment))
	}
	if r, ok := readers[at.segment-1].(*io.LimitedReader); ok && at.offset+int64(at.length) > r.N {
		return staleError(fmt.Sprintf("it is ahead of the ledger: it ends with entry %d", at.seq))
	}
	shelf := lineReader{dir: x.ledger.dir}
	defer shelf.close()
	_, err := shelf.readEntry(at)
	return err
}

// feedSegment adds the entries of a segment after the batch's mark.
func (x *Index) feedSegment(ctx context.Context, segment int, r io.Reader, b *batch, still func() bool) error {
	begin := int64(0)
	if b.mark.at.segment == segment {
		begin = b.mark.at.offset + int64(b.mark.at.length)
	}
	if more, err := skipBytes(r, begin); err != nil || !more {
		return err
	}
	ends := &lineEndReader{r: r, read: begin, last: begin}
	for e, err := range audit.Scan(ends, audit.Head{Seq: b.mark.at.seq, Hash: b.mark.at.hash}) {
		var bad *audit.Bad
		if errors.As(err, &bad) {
			bad.Segment = segment
			return damagedError(x.ledger.dir.path, bad)
		}
		if err != nil {
			return fmt.Errorf("reading the ledger: %w", err)
		}
		offset, end := ends.nextLine()
		if err := b.addEntry(e, linePlace{e.Seq, segment, offset, int(end - offset), e.Prev, e.Hash}); err != nil {
			return err
		}
		if b.entries < batchEntries {
			continue
		}
		if err := x.commitBatch(ctx, b); err != nil {
			return err
		}
		if still != nil && !still() {
			return errDisturbed
		}
	}
	return nil
}

// skipBytes skips the first n bytes of a segment and reports whether there may be more.
func skipBytes(r io.Reader, n int64) (more bool, err error) {
	switch r := r.(type) {
	case *io.LimitedReader:
		if r.N -= n; r.N <= 0 {
			return false, nil
		}
		return skipBytes(r.R, n)
	case io.Seeker:
		_, err := r.Seek(n, io.SeekCurrent)
		return true, err
	}
	_, err = io.CopyN(io.Discard, r, n)
	return true, err
}

// lineEndReader passes a segment on and records where its lines end, because a scan reads ahead of the entries that it yields.
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
