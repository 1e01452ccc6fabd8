package ledger

import (
	"context"
	"errors"
	"time"
)

// Run feeds the index while the ledger is quiet, so that who asks after a busy day does not wait. It returns when
// ctx ends. What goes wrong is said to the operator once, and again when somebody asks.
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

// Quiet is a ledger to which nothing was written for so long; behind, an index whose ledger has grown by so many bytes.
const (
	quiet  = 5 * time.Second
	behind = 1 << 20
)

func (x *Index) behind(now position) bool {
	return now.segment != x.fed.segment || now.bytes < x.fed.bytes || now.bytes > x.fed.bytes+behind
}

func (x *Index) feedQuietly(ctx context.Context, still func() bool) {
	if x.lock(ctx) != nil {
		return
	}
	defer x.unlock()
	if !x.behind(*x.ledger.durable.Load()) {
		return
	}
	err := x.renewed(ctx, func() error { return x.catchUp(ctx, still) })
	if err != nil && ctx.Err() == nil && !errors.Is(err, errDisturbed) {
		x.fed = *x.ledger.durable.Load() // not again before there is more
		x.log.Warn("the index of receipts is not fed", "file", x.path, "err", err)
	}
}
