package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/receipts"
)

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
