package ledger

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"

	"bailey"
	"bailey/internal/receipts"
)

// IndexConfig configures an Index.
type IndexConfig struct {
	Path   string       // of the file, in a directory that only this user can access
	Ledger *Log         // the ledger whose receipts it finds
	Log    *slog.Logger // for operators; if nil, nothing is logged
}

// Index finds receipts without reading the whole ledger. It is a view: a SQLite file that may be deleted at any time.
// It holds only the places of receipts. Their content is read from the ledger and checked each time.
//
// The index is never ahead of the ledger. It is fed only with durable entries, in transactions that carry the number,
// hash and place of the last entry. Before each answer, that entry must be at the same place in the ledger. An index
// that is behind catches up. If an index is of another ledger or schema, damaged, ahead (the ledger was restored from a
// copy) or written by another process, it is deleted and rebuilt, and the operator's log says so. While it cannot be
// used, the ledger is scanned instead. No call waits for it or fails with it.
//
// While the index is open, no other SQLite can read or write it, and its files must be unchanged before and after each
// answer. While it is closed, a process that can write it can forge it. If no receipt may be missed, read the ledger
// ([Index.Scan], [Reader]).
type Index struct {
	path   string
	ledger *Log
	log    *slog.Logger
	pages  int // limit of the file in pages, 0 for no limit; for tests

	scans  chan struct{} // held by the caller that scans the ledger
	turn   chan struct{} // held by the caller that uses the fields below
	db     *sql.DB       // nil until the first query
	left   indexStamps   // the files after our last write
	mark   indexProgress
	whole  bool                        // it was fed once, and has its indexes
	opened map[bailey.ReceiptID]uint64 // fed since it was opened, without an outcome
	fed    position                    // the durable position when it was last fed
}

// NewIndex returns an index. It opens no file.
func NewIndex(c IndexConfig) *Index {
	x := &Index{path: c.Path, ledger: c.Ledger, log: c.Log, turn: make(chan struct{}, 1), scans: make(chan struct{}, 1),
		fed: *c.Ledger.durable.Load()}
	if x.log == nil {
		x.log = slog.New(slog.DiscardHandler)
	}
	return x
}

// staleError is the reason why an index is discarded, such as another schema.
type staleError string

func (s staleError) Error() string { return string(s) }

// Find returns the receipts that match f, up to the durable end of the ledger at the time of the call.
func (x *Index) Find(ctx context.Context, f receipts.Filter) (receipts.Page, error) {
	if err := f.Check(); err != nil {
		return receipts.Page{}, err
	}
	page, err := x.findIndexed(ctx, f)
	if err == nil || ctx.Err() != nil {
		return page, err
	}
	x.log.Warn("the index of receipts gives no answer: the ledger is read through instead", "file", x.path, "err", err)
	return x.Scan(ctx, f)
}

// Scan searches the ledger itself for the receipts that match f, one scan at a time. A scan takes long, and callers may
// ask often.
func (x *Index) Scan(ctx context.Context, f receipts.Filter) (receipts.Page, error) {
	select {
	case x.scans <- struct{}{}:
		defer func() { <-x.scans }()
		return x.ledger.scanFor(ctx, f)
	case <-ctx.Done():
		return receipts.Page{}, context.Cause(ctx)
	}
}

func (x *Index) findIndexed(ctx context.Context, f receipts.Filter) (page receipts.Page, err error) {
	if err := x.lock(ctx); err != nil {
		return page, err
	}
	defer x.unlock()
	err = x.useOrRebuild(ctx, func() error {
		if err := x.catchUp(ctx, nil); err != nil {
			return err
		}
		page, err = x.queryReceipts(ctx, f)
		return err
	})
	return page, err
}

// useOrRebuild calls do with the index. If the index is stale, it calls do again with a new one.
func (x *Index) useOrRebuild(ctx context.Context, do func() error) error {
	err := x.useIndex(ctx, do)
	var why staleError
	if !errors.As(err, &why) {
		return err
	}
	x.log.Warn("the index of receipts is made anew", "file", x.path, "why", err)
	if err := x.removeFiles(); err != nil {
		return err
	}
	return x.useIndex(ctx, do)
}

func (x *Index) useIndex(ctx context.Context, do func() error) error {
	if err := x.ensureOpen(ctx); err != nil {
		x.closeDB() // not half open
		return classifyError(err)
	}
	err := do()
	// a file that was deleted meanwhile was valid
	if now := x.readStamps(); err == nil && now != x.left && now.main != (fileStamp{}) {
		err = errForeign
	}
	return classifyError(err)
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

// Close closes the file. If the file is complete and unchanged since our last write, Close seals it. If another process
// wrote to it, Close deletes it.
func (x *Index) Close() error {
	x.turn <- struct{}{}
	defer x.unlock()
	now := x.readStamps()
	switch {
	case x.db == nil:
		return nil
	case now.main == (fileStamp{}), now == x.left && !x.whole:
		return x.closeDB()
	case now == x.left:
		err := x.sealFile()
		if err == nil || !errors.Is(err, errForeign) {
			return err
		}
	}
	x.log.Warn("the index of receipts is deleted", "file", x.path, "why", errForeign)
	return x.removeFiles()
}

func (x *Index) closeDB() error {
	if x.db == nil {
		return nil
	}
	err := x.db.Close()
	x.db = nil
	return err
}
