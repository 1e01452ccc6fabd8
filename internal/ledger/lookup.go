package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"bailey/audit"
	"bailey/internal/receipts"
)

// queryReceipts reads the rows that match f, and the entries that they refer to from the ledger.
func (x *Index) queryReceipts(ctx context.Context, f receipts.Filter) (receipts.Page, error) {
	page := receipts.Page{Records: []receipts.Record{}, Origin: x.mark.origin,
		Head: audit.Head{Seq: x.mark.at.seq, Hash: x.mark.at.hash}}
	places, err := x.queryPlaces(ctx, f, &page.More)
	if err != nil {
		return page, err
	}
	shelf := lineReader{dir: x.ledger.dir}
	defer shelf.close()
	for _, p := range places {
		r, err := shelf.readRecord(p)
		if err != nil {
			return page, err
		}
		if !f.Matches(r) {
			return page, staleError(fmt.Sprintf("its row of entry %d is not what the ledger holds", r.Seq))
		}
		page.Records = append(page.Records, r)
	}
	return page, nil
}

// queryPlaces returns the places of the matching receipts, at most one page, and sets more if there are others.
func (x *Index) queryPlaces(ctx context.Context, f receipts.Filter, more *bool) (list []receiptLines, err error) {
	size := x.mark.at.seq
	if f.Size > 0 {
		size = min(size, f.Size)
	}
	q := questionFor(&f, size)
	if ok, err := x.narrowRange(ctx, f, &q); !ok {
		return nil, err
	}
	statement, args := q.buildSQL(&f, f.Limit+1)
	rows, err := x.db.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for bytes := 0; rows.Next(); {
		var p receiptLines
		if err := p.scanRow(rows); err != nil {
			return nil, err
		}
		if p.outcome.seq > size {
			p.outcome = linePlace{}
		}
		bytes += p.intent.length + p.outcome.length
		if len(list) == f.Limit || len(list) > 0 && bytes > receipts.MaxPage {
			*more = true
			break
		}
		list = append(list, p)
	}
	return list, rows.Err()
}

// narrowRange narrows a question with times to the range of numbers that can match: no start is more than late behind the
// latest start before it. It returns false if no receipt can match.
func (x *Index) narrowRange(ctx context.Context, f receipts.Filter, q *indexQuery) (bool, error) {
	at := func(statement string, time int64) (seq uint64, ok bool, err error) {
		err = x.db.QueryRowContext(ctx, statement, time).Scan(&seq)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, false, nil
		}
		return seq, err == nil, err
	}
	if !f.Since.IsZero() {
		q.addCondition(" AND started >= ?", f.Since.UnixMicro())
		seq, ok, err := at(sinceSeq, f.Since.UnixMicro())
		if !ok {
			return false, err
		}
		q.from = max(q.from, seq)
	}
	if !f.Until.IsZero() {
		q.addCondition(" AND started < ?", f.Until.UnixMicro())
		seq, ok, err := at(untilSeq, f.Until.UnixMicro()+x.mark.late)
		if !ok {
			return false, err
		}
		q.to = min(q.to, seq)
	}
	return true, nil
}
