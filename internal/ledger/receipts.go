package ledger

import (
	"context"
	"encoding/json"
	"iter"
	"slices"

	"bailey"
	"bailey/audit"
	"bailey/internal/receipts"
)

// Find returns the receipts that match f. It reads the ledger from its beginning to its durable end at the time of the
// call, and checks the chain. An index is quicker, and Find is the fallback for it.
func (l *Log) Find(ctx context.Context, f receipts.Filter) (receipts.Page, error) {
	return findIn(l.Entries(ctx, Place{}, l.Durable()), f)
}

// findIn returns the receipts that match f among the entries.
func findIn(entries iter.Seq2[Placed, error], f receipts.Filter) (receipts.Page, error) {
	if err := f.Check(); err != nil {
		return receipts.Page{}, err
	}
	found := finder{filter: f, open: make(map[bailey.ReceiptID]audit.Entry)}
	for p, err := range entries {
		if err == nil {
			err = found.addEntry(p.Entry)
		}
		if err != nil {
			return receipts.Page{}, err
		}
	}
	return found.finishPage()
}

// Extent returns the number of durable entries, and of their segments and bytes.
func (l *Log) Extent() (entries uint64, segments int, bytes int64, err error) {
	files, err := l.dir.openSegments()
	if err != nil {
		return 0, 0, 0, err
	}
	defer closeAll(files)
	at := l.Durable()
	for _, f := range files[:min(len(files), at.Segment-1)] {
		st, err := f.Stat()
		if err != nil {
			return 0, 0, 0, err
		}
		bytes += st.Size()
	}
	return at.Tree.Size(), at.Segment, bytes + at.Bytes, nil
}

// finder collects during a scan the first receipts that match the filter.
type finder struct {
	filter receipts.Filter
	page   receipts.Page
	open   map[bailey.ReceiptID]audit.Entry // intents without an outcome so far
	found  []found
	bytes  int // of what is found
}

// found is a matching receipt. The size of its data bounds the number of receipts in a page.
type found struct {
	receipts.Record
	bytes int
}

func (f *finder) addEntry(e audit.Entry) error {
	f.page.Head = audit.Head{Seq: e.Seq, Hash: e.Hash}
	if e.Kind == audit.KindGenesis {
		var g audit.Genesis
		err := json.Unmarshal(e.Data, &g)
		f.page.Origin = g.Origin
		return err
	}
	if f.filter.Size > 0 && e.Seq > f.filter.Size {
		return nil
	}
	switch e.Kind {
	case audit.KindIntent:
		if f.filter.MayMatch(e) {
			f.open[e.Receipt] = e
		}
	case audit.KindOutcome:
		if intent, ok := f.open[e.Receipt]; ok {
			delete(f.open, e.Receipt)
			return f.addReceipt(intent, e)
		}
	}
	return nil
}

func (f *finder) addReceipt(intent, outcome audit.Entry) error {
	r, err := receipts.NewRecord(intent, outcome)
	if err != nil || !f.filter.Matches(r) {
		return err
	}
	size := len(intent.Data) + len(outcome.Data)
	f.found, f.bytes = append(f.found, found{r, size}), f.bytes+size
	if len(f.found) > 2*f.filter.Limit || f.bytes > 2*receipts.MaxPage {
		f.trimPage()
	}
	return nil
}

// trimPage keeps the receipts that fit into the page.
func (f *finder) trimPage() {
	slices.SortFunc(f.found, func(a, b found) int { return f.filter.Order(a.Seq, b.Seq) })
	f.bytes = 0
	for i, r := range f.found {
		if i == f.filter.Limit || i > 0 && f.bytes+r.bytes > receipts.MaxPage {
			clear(f.found[i:])
			f.found, f.page.More = f.found[:i], true
			return
		}
		f.bytes += r.bytes
	}
}

func (f *finder) finishPage() (receipts.Page, error) {
	for _, intent := range f.open {
		if err := f.addReceipt(intent, audit.Entry{}); err != nil {
			return receipts.Page{}, err
		}
	}
	f.trimPage()
	f.page.Records = make([]receipts.Record, 0, len(f.found))
	for _, r := range f.found {
		f.page.Records = append(f.page.Records, r.Record)
	}
	return f.page, nil
}
