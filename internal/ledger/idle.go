package ledger

import (
	"context"
	"errors"
	"time"
)

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
