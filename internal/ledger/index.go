package ledger

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"

	"bailey"
)

// IndexConfig is what an Index is made of.
type IndexConfig struct {
	Path   string       // of the file, in a directory that is ours alone
	Ledger *Log         // whose receipts it finds
	Log    *slog.Logger // for operators; nil is silent
}

// Index finds receipts without reading the whole ledger. It is a view: a SQLite file that may be deleted at any
// time. It says where receipts stand; what they say is read from the ledger and checked, each time.
//
// It is never ahead of the ledger: it is fed with durable entries alone, in transactions that carry the number, hash
// and place of the last entry they hold. Before each answer that entry has to be where the ledger has it. An index
// that is behind catches up. One of another ledger, of another schema, damaged, ahead (the ledger was
// restored from a copy) or written by somebody else is deleted and made anew, and the operator's log says so. While it
// cannot be used, the ledger is scanned instead. No call waits for it or fails with it.
//
// While it is open no other SQLite can read or write it, and before and after each answer its files are as we left them.
// While nobody has it open, who can write it can forge it: what must not be missing is read from the ledger ([Index.Scan],
// [Reader]).
type Index struct {
	path   string
	ledger *Log
	log    *slog.Logger
	pages  int // most that the file may grow to, in pages; 0 is no bound. For tests

	scans  chan struct{} // held by who reads the ledger through
	turn   chan struct{} // held by whoever uses what stands below
	db     *sql.DB       // nil until somebody asks
	left   traces        // as we left it
	mark   mark
	whole  bool                        // it was fed once, and has its indexes
	opened map[bailey.ReceiptID]uint64 // receipts without outcome that were fed since it was opened
	fed    position                    // up to where the ledger was durable when it was last fed
}

// NewIndex makes an index and opens nothing.
func NewIndex(c IndexConfig) *Index {
	x := &Index{path: c.Path, ledger: c.Ledger, log: c.Log, turn: make(chan struct{}, 1), scans: make(chan struct{}, 1), fed: *c.Ledger.durable.Load()}
	if x.log == nil {
		x.log = slog.New(slog.DiscardHandler)
	}
	return x
}

// stale is why an index is thrown away.
type stale string

func (s stale) Error() string { return string(s) }

// Find returns the receipts that f wants, as far as the ledger was durable when it was called.
func (x *Index) Find(ctx context.Context, f Filter) (Page, error) {
	if err := f.check(); err != nil {
		return Page{}, err
	}
	page, err := x.find(ctx, f)
	if err == nil || ctx.Err() != nil {
		return page, err
	}
	x.log.Warn("the index of receipts gives no answer: the ledger is read through instead", "file", x.path, "err", err)
	return x.Scan(ctx, f)
}

// Scan reads the ledger itself through for the receipts that f wants, one who asks after another: it takes long, and whoever
// may ask may ask often.
func (x *Index) Scan(ctx context.Context, f Filter) (Page, error) {
	select {
	case x.scans <- struct{}{}:
		defer func() { <-x.scans }()
		return x.ledger.scanFor(ctx, f)
	case <-ctx.Done():
		return Page{}, context.Cause(ctx)
	}
}

func (x *Index) find(ctx context.Context, f Filter) (page Page, err error) {
	if err := x.lock(ctx); err != nil {
		return page, err
	}
	defer x.unlock()
	err = x.renewed(ctx, func() error {
		if err := x.catchUp(ctx, nil); err != nil {
			return err
		}
		page, err = x.query(ctx, f)
		return err
	})
	return page, err
}

// renewed does something with the index, and again with a new one when the first was not fit.
func (x *Index) renewed(ctx context.Context, do func() error) error {
	err := x.ready(ctx, do)
	var why stale
	if !errors.As(err, &why) {
		return err
	}
	x.log.Warn("the index of receipts is made anew", "file", x.path, "why", err)
	if err := x.remove(); err != nil {
		return err
	}
	return x.ready(ctx, do)
}

func (x *Index) ready(ctx context.Context, do func() error) error {
	if err := x.open(ctx); err != nil {
		x.shut() // not half open
		return classify(err)
	}
	err := do()
	if now := x.now(); err == nil && now != x.left && now.main != (stamp{}) { // one that was deleted meanwhile was whole
		err = errForeign
	}
	return classify(err)
}

func (x *Index) lock(ctx context.Context) error {
	select {
	case x.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (x *Index) unlock() { <-x.turn }

// Close lets the file go, sealed when it is what we would answer for. What somebody else has written is deleted.
func (x *Index) Close() error {
	x.turn <- struct{}{}
	defer x.unlock()
	now := x.now()
	switch {
	case x.db == nil:
		return nil
	case now.main == (stamp{}), now == x.left && !x.whole:
		return x.shut()
	case now == x.left:
		err := x.seal()
		if err == nil || !errors.Is(err, errForeign) {
			return err
		}
	}
	x.log.Warn("the index of receipts is deleted", "file", x.path, "why", errForeign)
	return x.remove()
}

func (x *Index) shut() error {
	if x.db == nil {
		return nil
	}
	err := x.db.Close()
	x.db = nil
	return err
}
