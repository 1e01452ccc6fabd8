package ledger

import (
	"bufio"
	"errors"

	"bailey"
	"bailey/audit"
	"bailey/internal/receipts"
)

// receiptQueue puts receipts into the order of their intents during the second reading of a ledger. It waits for most
// outcomes, which come soon; the places of the late ones are known. So it holds no more than a window of the ledger.
type receiptQueue struct {
	reader  *Reader
	filter  receipts.Filter
	late    map[uint64]linePlace
	do      func(receipts.Record) error
	head    audit.Head
	order   []*pendingReceipt
	waiting map[bailey.ReceiptID]*pendingReceipt
	buf     *bufio.Reader
}

// pendingReceipt is a receipt that is not passed on yet.
type pendingReceipt struct {
	intent, outcome audit.Entry
	whole           bool
}

func (q *receiptQueue) addEntry(p placedEntry) error {
	q.head = audit.Head{Seq: p.Seq, Hash: p.Hash}
	switch p.Kind {
	case audit.KindIntent:
		if !q.filter.MayMatch(p.Entry) {
			return nil
		}
		next := &pendingReceipt{intent: p.Entry}
		at, late := q.late[p.Seq]
		if late && at.seq > 0 {
			var err error
			if next.outcome, err = q.readOutcome(at); err != nil {
				return err
			}
		}
		if next.whole = late; !late {
			q.waiting[p.Receipt] = next
		}
		q.order = append(q.order, next)
	case audit.KindOutcome:
		if waits := q.waiting[p.Receipt]; waits != nil {
			waits.outcome, waits.whole = p.Entry, true
			delete(q.waiting, p.Receipt)
		}
	default:
		return nil
	}
	return q.emitComplete()
}

// emitComplete passes on the complete receipts before the first incomplete one.
func (q *receiptQueue) emitComplete() error {
	for len(q.order) > 0 && q.order[0].whole {
		first := q.order[0]
		q.order[0], q.order = nil, q.order[1:]
		r, err := receipts.NewRecord(first.intent, first.outcome)
		if err != nil {
			return err
		}
		if !q.filter.Matches(r) {
			continue
		}
		if err := q.do(r); err != nil {
			return err
		}
	}
	return nil
}

// readOutcome reads an outcome ahead.
func (q *receiptQueue) readOutcome(at linePlace) (audit.Entry, error) {
	e, err := entryAt(q.reader.files[at.segment-1], q.buf, at)
	if why := staleError(""); errors.As(err, &why) {
		err = bailey.Conflict.Wrap(err, "the ledger in "+q.reader.dir+" changed while it was read",
			"begin again; bailey audit verify looks at what is there")
	}
	return e, err
}
