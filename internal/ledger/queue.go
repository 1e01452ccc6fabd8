package ledger

import (
	"bufio"
	"errors"

	"bailey"
	"bailey/audit"
	"bailey/internal/receipts"
)

// queue puts receipts into the order of their intents during the second reading of a ledger. It waits for most
// outcomes, which come soon; the places of the late ones are known. So it holds no more than a window of the ledger.
type queue struct {
	reader  *Reader
	filter  receipts.Filter
	late    map[uint64]line
	do      func(receipts.Record) error
	head    audit.Head
	order   []*pending
	waiting map[bailey.ReceiptID]*pending
	buf     *bufio.Reader
}

// pending is a receipt that is not passed on yet.
type pending struct {
	intent, outcome audit.Entry
	whole           bool
}

func (q *queue) add(p placed) error {
	q.head = audit.Head{Seq: p.Seq, Hash: p.Hash}
	switch p.Kind {
	case audit.KindIntent:
		if !q.filter.MayMatch(p.Entry) {
			return nil
		}
		next := &pending{intent: p.Entry}
		at, late := q.late[p.Seq]
		if late && at.seq > 0 {
			var err error
			if next.outcome, err = q.entry(at); err != nil {
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
	return q.give()
}

// give passes on the complete receipts before the first incomplete one.
func (q *queue) give() error {
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

// entry reads an outcome ahead.
func (q *queue) entry(at line) (audit.Entry, error) {
	e, err := entryAt(q.reader.files[at.segment-1], q.buf, at)
	if why := stale(""); errors.As(err, &why) {
		err = &bailey.Error{Kind: bailey.Conflict, Message: "the ledger in " + q.reader.dir + " changed while it was read", Hint: "begin again; bailey audit verify looks at what is there", Err: err}
	}
	return e, err
}
