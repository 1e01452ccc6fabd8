package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/receipts"
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

// batchEntries is the number of entries in one transaction.
const batchEntries = 8192

// batch holds entries that are to be written to the index.
type batch struct {
	mark    indexProgress // after these entries
	entries int
	rows    []*row
	open    map[bailey.ReceiptID]*row // those of rows that have no outcome
	ended   []receiptEnd              // outcomes of receipts in earlier batches
}

// row is a receipt as the index stores it.
type row struct {
	id      bailey.ReceiptID
	at      linePlace
	intent  intentRow
	started int64
	high    int64
	end     receiptEnd
}

// intentRow and outcomeRow hold the fields of an intent and an outcome that the index uses.
type intentRow struct {
	Session    string    `json:"session"`
	Capability string    `json:"capability"`
	Agent      string    `json:"agent"`
	Door       string    `json:"door"`
	DryRun     bool      `json:"dryRun"`
	StartedAt  time.Time `json:"startedAt"`
}

type outcomeRow struct {
	Status   string    `json:"outcome"`
	Decision string    `json:"decision"`
	EndedAt  time.Time `json:"endedAt"`
}

// receiptEnd is the outcome of a receipt. The zero end means that the receipt is open.
type receiptEnd struct {
	id bailey.ReceiptID
	outcomeRow
	at linePlace
}

// addEntry adds an entry to the batch.
func (b *batch) addEntry(e audit.Entry, at linePlace) error {
	b.entries++
	b.mark.at = at
	switch e.Kind {
	case audit.KindGenesis:
		var g audit.Genesis
		err := json.Unmarshal(e.Data, &g)
		b.mark.origin = g.Origin
		return err
	case audit.KindIntent:
		r := &row{id: e.Receipt, at: at}
		if err := json.Unmarshal(e.Data, &r.intent); err != nil {
			return fmt.Errorf("entry %d of the ledger is no intent of this version: %w", e.Seq, err)
		}
		r.started = r.intent.StartedAt.UnixMicro()
		b.mark.high = max(b.mark.high, r.started)
		b.mark.late = max(b.mark.late, b.mark.high-r.started)
		r.high = b.mark.high
		if b.open == nil {
			b.open = make(map[bailey.ReceiptID]*row)
		}
		b.rows, b.open[e.Receipt] = append(b.rows, r), r
	case audit.KindOutcome:
		o := receiptEnd{id: e.Receipt, at: at}
		if err := json.Unmarshal(e.Data, &o.outcomeRow); err != nil {
			return fmt.Errorf("entry %d of the ledger is no outcome of this version: %w", e.Seq, err)
		}
		if r := b.open[e.Receipt]; r != nil {
			r.end = o
			delete(b.open, e.Receipt)
			return nil
		}
		b.ended = append(b.ended, o)
	}
	return nil
}

// commitBatch writes the batch and its mark, both or neither, and empties the batch.
func (x *Index) commitBatch(ctx context.Context, b *batch) error {
	if b.entries == 0 {
		return nil
	}
	defer x.recordStamps() // also after a rollback
	tx, err := x.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := x.writeBatch(ctx, tx, b); err != nil {
		return err
	}
	m := b.mark
	if _, err := tx.ExecContext(ctx, setMark, m.origin, m.at.seq, m.at.segment, m.at.offset, m.at.length, m.at.prev[:],
		m.at.hash[:], m.high, m.late); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	for _, o := range b.ended {
		delete(x.opened, o.id)
	}
	for id, r := range b.open {
		if x.opened == nil {
			x.opened = make(map[bailey.ReceiptID]uint64)
		}
		x.opened[id] = r.at.seq
	}
	x.mark, *b = m, batch{mark: m}
	return nil
}

func (x *Index) writeBatch(ctx context.Context, tx *sql.Tx, b *batch) error {
	insert, err := tx.PrepareContext(ctx, insertReceipt)
	if err != nil {
		return err
	}
	defer insert.Close()
	for _, r := range b.rows {
		in, at := r.intent, r.at
		args := append([]any{at.seq, string(r.id), in.Session, in.Capability, in.Agent, in.Door, in.DryRun, r.started,
			r.high,
			at.segment, at.offset, at.length, at.prev[:], at.hash[:]}, r.end.columnValues()...)
		if _, err := insert.ExecContext(ctx, args...); err != nil {
			return err
		}
	}
	for _, o := range b.ended {
		if err := x.endReceipt(ctx, tx, &o); err != nil {
			return err
		}
	}
	return nil
}

// endReceipt closes a receipt of an earlier batch.
func (x *Index) endReceipt(ctx context.Context, tx *sql.Tx, o *receiptEnd) error {
	seq, ok := x.opened[o.id]
	if !ok {
		if err := tx.QueryRowContext(ctx, openReceipt, string(o.id)).Scan(&seq); err != nil &&
			!errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	result, err := tx.ExecContext(ctx, closeReceipt, append(o.columnValues(), seq)...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return staleError(fmt.Sprintf("it has no open receipt %s for entry %d", o.id, o.at.seq))
	}
	return nil
}

// columnValues returns the columns of an end, in the order of both statements.
func (o *receiptEnd) columnValues() []any {
	if o.at.seq == 0 {
		return []any{string(receipts.Open), "", nil, 0, nil, nil, nil, nil, nil}
	}
	return []any{o.Status, o.Decision, o.EndedAt.UnixMicro(), o.at.seq, o.at.segment, o.at.offset, o.at.length,
		o.at.prev[:], o.at.hash[:]}
}

// Run feeds the index while the ledger is quiet, so that a query after a busy day does not wait. It returns when ctx
// ends. An error is logged once, and again when a query meets it.
func (x *Index) Run(ctx context.Context) error {
	tick := time.NewTicker(quiet)
	defer tick.Stop()
	for last := *x.ledger.durable.Load(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := *x.ledger.durable.Load()
		still := func() bool { return *x.ledger.durable.Load() == now }
		if now == last {
			x.feedQuietly(ctx, still)
		}
		last = now
	}
}

// quiet is how long a ledger must be without writes before the index is fed. behind is how many bytes the ledger must
// have grown by then.
const (
	quiet  = 5 * time.Second
	behind = 1 << 20
)

func (x *Index) isBehind(now position) bool {
	return now.segment != x.fed.segment || now.bytes < x.fed.bytes || now.bytes > x.fed.bytes+behind
}

func (x *Index) feedQuietly(ctx context.Context, still func() bool) {
	if x.lock(ctx) != nil {
		return
	}
	defer x.unlock()
	if !x.isBehind(*x.ledger.durable.Load()) {
		return
	}
	err := x.useOrRebuild(ctx, func() error { return x.catchUp(ctx, still) })
	if err != nil && ctx.Err() == nil && !errors.Is(err, errDisturbed) {
		x.fed = *x.ledger.durable.Load() // not again before the ledger grows
		x.log.Warn("the index of receipts is not fed", "file", x.path, "err", err)
	}
}
