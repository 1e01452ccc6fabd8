package ledger

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"

	"bailey"
	"bailey/audit"
	"bailey/internal/receipts"
)

// Receipts returns the receipts that match f. It reads the ledger from its beginning to its durable end at the time of
// the call, and checks the chain. [Index] is quicker, and Receipts is the fallback for it.
func (l *Log) Receipts(f receipts.Filter) ([]receipts.Record, error) {
	page, err := l.scanFor(context.Background(), f)
	return page.Records, err
}

func (l *Log) scanFor(ctx context.Context, f receipts.Filter) (receipts.Page, error) {
	if err := f.Check(); err != nil {
		return receipts.Page{}, err
	}
	files, err := l.dir.openSegments()
	if err != nil {
		return receipts.Page{}, err
	}
	defer closeAll(files)
	found := newFinder(f)
	for p, err := range walkLedger(ctx, l.dir.path, l.upToDurable(files)) {
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
	at := l.durable.Load()
	for _, f := range files[:min(len(files), at.segment-1)] {
		st, err := f.Stat()
		if err != nil {
			return 0, 0, 0, err
		}
		bytes += st.Size()
	}
	return at.tree.Size(), at.segment, bytes + at.bytes, nil
}

// upToDurable limits the segments to the durable part.
func (l *Log) upToDurable(files []*os.File) []io.Reader {
	return upTo(files, l.durable.Load())
}

// openSegments opens every segment for reading. It fails if the directory holds no segment.
func (d *directory) openSegments() (files []*os.File, err error) {
	names, err := d.listSegments()
	if err == nil && len(names) == 0 {
		err = noLedgerError(d.path)
	}
	for _, name := range names {
		f, oerr := d.openRegular(name, os.O_RDONLY)
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

func newFinder(f receipts.Filter) *finder {
	return &finder{filter: f, open: make(map[bailey.ReceiptID]audit.Entry)}
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
