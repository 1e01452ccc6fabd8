package index

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger"
	"bailey/internal/receipts"
)

// receiptLines holds the places of the two lines of a receipt. If the receipt is open, outcome is zero.
type receiptLines struct{ intent, outcome ledger.Place }

func (p *receiptLines) scanRow(rows *sql.Rows) error {
	var segment, offset, length sql.NullInt64
	var prev, hash, oprev, ohash sql.RawBytes
	i, o := &p.intent, &p.outcome
	if err := rows.Scan(&i.Seq, &i.Segment, &i.Offset, &i.Length, &prev, &hash, &o.Seq, &segment, &offset, &length,
		&oprev, &ohash); err != nil {
		return err
	}
	o.Segment, o.Offset, o.Length = int(segment.Int64), offset.Int64, int(length.Int64)
	copy(i.Prev[:], prev)
	copy(i.Hash[:], hash)
	copy(o.Prev[:], oprev)
	copy(o.Hash[:], ohash)
	return nil
}

// indexProgress states how far an index reaches. The index itself stores it.
type indexProgress struct {
	origin string
	at     ledger.Place // the last entry in the index; zero if it holds none
	high   int64        // the latest start so far, in microseconds since 1970
	late   int64        // the longest time by which a start was behind the latest before it
}

func (m *indexProgress) scanRow(row *sql.Row) error {
	var prev, hash []byte
	if err := row.Scan(&m.origin, &m.at.Seq, &m.at.Segment, &m.at.Offset, &m.at.Length, &prev, &hash, &m.high,
		&m.late); err != nil {
		return err
	}
	copy(m.at.Prev[:], prev)
	copy(m.at.Hash[:], hash)
	return nil
}

// errDisturbed ends a feed between two batches.
var errDisturbed = errors.New("the ledger is in use")

// catchUp feeds the index up to the durable end of the ledger. If still is set, it decides whether the next batch
// follows.
func (x *Index) catchUp(ctx context.Context, still func() bool) error {
	to := x.ledger.Durable()
	if err := x.checkLastEntry(to); err != nil {
		return err
	}
	b := batch{mark: x.mark}
	for p, err := range x.ledger.Entries(ctx, b.mark.at, to) {
		if err == nil {
			err = b.addEntry(p.Entry, p.At)
		}
		if err != nil {
			return err
		}
		if b.entries < batchEntries {
			continue
		}
		if err := x.commitBatch(ctx, &b); err != nil {
			return err
		}
		if still != nil && !still() {
			return errDisturbed
		}
	}
	if err := x.commitBatch(ctx, &b); err != nil {
		return err
	}
	x.fed = to
	return x.completeSchema(ctx)
}

// checkLastEntry checks that the last entry of the index is in the ledger at the same place. The log has verified its
// chain: if two ledgers share an entry of one hash, they share all entries before it.
func (x *Index) checkLastEntry(to ledger.Position) error {
	at := x.mark.at
	if at.Seq == 0 {
		return nil
	}
	if at.Segment < 1 || at.Segment > to.Segment ||
		at.Segment == to.Segment && at.Offset+int64(at.Length) > to.Bytes {
		return staleError(fmt.Sprintf("it is ahead of the ledger: it ends with entry %d in segment %d", at.Seq, at.Segment))
	}
	lines := x.ledger.Lines()
	defer lines.Close()
	_, err := lines.Entry(at)
	return err
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
	at      ledger.Place
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
	at ledger.Place
}

// addEntry adds an entry to the batch.
func (b *batch) addEntry(e audit.Entry, at ledger.Place) error {
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
			return fmt.Errorf("entry %d of the ledger is not an intent of this version: %w", e.Seq, err)
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
			return fmt.Errorf("entry %d of the ledger is not an outcome of this version: %w", e.Seq, err)
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
	if _, err := tx.ExecContext(ctx, setMark, m.origin, m.at.Seq, m.at.Segment, m.at.Offset, m.at.Length, m.at.Prev[:],
		m.at.Hash[:], m.high, m.late); err != nil {
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
		x.opened[id] = r.at.Seq
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
		args := append([]any{at.Seq, string(r.id), in.Session, in.Capability, in.Agent, in.Door, in.DryRun, r.started,
			r.high,
			at.Segment, at.Offset, at.Length, at.Prev[:], at.Hash[:]}, r.end.columnValues()...)
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
		return staleError(fmt.Sprintf("it has no open receipt %s for entry %d", o.id, o.at.Seq))
	}
	return nil
}

// columnValues returns the columns of an end, in the order of both statements.
func (o *receiptEnd) columnValues() []any {
	if o.at.Seq == 0 {
		return []any{string(receipts.Open), "", nil, 0, nil, nil, nil, nil, nil}
	}
	return []any{o.Status, o.Decision, o.EndedAt.UnixMicro(), o.at.Seq, o.at.Segment, o.at.Offset, o.at.Length,
		o.at.Prev[:], o.at.Hash[:]}
}

// Run feeds the index while the ledger is quiet, so that a query after a busy day does not wait. It returns when ctx
// ends. An error is logged once, and again when a query meets it.
func (x *Index) Run(ctx context.Context) error {
	tick := time.NewTicker(quiet)
	defer tick.Stop()
	for last := x.ledger.Durable(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := x.ledger.Durable()
		still := func() bool { return x.ledger.Durable() == now }
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

func (x *Index) isBehind(now ledger.Position) bool {
	return now.Segment != x.fed.Segment || now.Bytes < x.fed.Bytes || now.Bytes > x.fed.Bytes+behind
}

func (x *Index) feedQuietly(ctx context.Context, still func() bool) {
	if x.lock(ctx) != nil {
		return
	}
	defer x.unlock()
	if !x.isBehind(x.ledger.Durable()) {
		return
	}
	err := x.useOrRebuild(ctx, func() error { return x.catchUp(ctx, still) })
	if err != nil && ctx.Err() == nil && !errors.Is(err, errDisturbed) {
		x.fed = x.ledger.Durable() // not again before the ledger grows
		x.log.Warn("the index of receipts is not updated", "file", x.path, "err", err)
	}
}
