package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"sync/atomic"

	"bailey"
	"bailey/audit"
)

// request is an entry on its way to the disk.
type request struct {
	kind    string
	data    []byte
	receipt bailey.ReceiptID // of an intent or outcome: the one that data names
	plan    *audit.Plan      // which the ledger has to hold before the entry; nil where it names none
	err     error            // owned by the writer until done is closed
	done    chan struct{}    // closed when the entry is durable or refused
}

// Open records an intent. When it returns without error the intent is on the disk and so is the space
// for its outcome. The caller calls seal exactly once, and tells nobody the result before seal returned: an
// error of seal means that the outcome is not durable. Sealing again is an error and writes nothing.
//
// ctx counts until the writer has heard of the intent; then the disk alone decides.
func (l *Log) Open(ctx context.Context, in bailey.Intent) (seal func(bailey.Outcome) error, err error) {
	data, err := json.Marshal(in)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "the intent has no JSON form", Err: err}
	}
	if err := l.submit(ctx, &request{kind: audit.KindIntent, data: data, receipt: in.Receipt}); err != nil {
		return nil, err
	}
	var sealed atomic.Bool
	return func(o bailey.Outcome) error {
		if sealed.Swap(true) {
			return &bailey.Error{Kind: bailey.Conflict, Message: "receipt " + string(in.Receipt) + " is sealed already"}
		}
		o.Receipt = in.Receipt
		return l.seal(o)
	}, nil
}

func (l *Log) seal(o bailey.Outcome) error {
	if o.EndedAt.IsZero() {
		o.EndedAt = l.now().UTC()
	}
	data, err := fit(o)
	if err != nil {
		return &bailey.Error{Kind: bailey.Internal, Message: "the outcome has no JSON form", Err: err}
	}
	plan, err := planOf(o.Cage)
	if err != nil {
		return err
	}
	return l.submit(context.Background(), &request{kind: audit.KindOutcome, data: data, receipt: o.Receipt, plan: plan})
}

// Note records any other event. data becomes a JSON object, nil an empty one; what does not is refused.
// When Note returns without error the event is on the disk.
func (l *Log) Note(ctx context.Context, kind string, data any) error {
	return l.NoteCaged(ctx, kind, data, nil)
}

// NoteCaged is Note for an event in a cage: the cage's plan stands before it in the ledger.
func (l *Log) NoteCaged(ctx context.Context, kind string, data any, cage *bailey.Cage) error {
	switch kind {
	case audit.KindGenesis, audit.KindIntent, audit.KindOutcome, audit.KindRepair, audit.KindPlan, audit.KindSegment, audit.KindKey:
		return &bailey.Error{Kind: bailey.Internal, Message: "the ledger keeps entries of kind " + kind + " to itself"}
	}
	raw := []byte("{}")
	if data != nil {
		var err error
		if raw, err = json.Marshal(data); err != nil {
			return &bailey.Error{Kind: bailey.Internal, Message: "the note " + kind + " has no JSON form", Err: err}
		}
	}
	plan, err := planOf(cage)
	if err != nil {
		return err
	}
	return l.submit(ctx, &request{kind: kind, data: raw, plan: plan})
}

// submit hands an entry to the writer and waits until it is durable or refused.
func (l *Log) submit(ctx context.Context, r *request) error {
	r.done = make(chan struct{})
	select {
	case l.queue <- r:
	case <-l.stop:
		return errClosed()
	case <-ctx.Done():
		return &bailey.Error{Kind: bailey.Unavailable, Message: "the ledger did not take the " + r.kind + " in time", Err: ctx.Err()}
	}
	<-r.done
	return r.err
}

func errClosed() error {
	return unavailable("call again: the next gateway opens the ledger anew", errors.New("ledger closed"), "the gateway is ending")
}

// run is the writer's goroutine. It ends when Close was called and nobody it has heard of waits.
func (l *Log) run() {
	defer close(l.gone)
	for {
		select {
		case r := <-l.queue:
			l.commit(l.collect(r))
		case <-l.stop:
			return
		}
	}
}

// The most that one group takes.
const (
	groupEntries = 1024
	groupBytes   = 4 << 20
)

// collect adds to first all that wait for the writer at this moment.
func (l *Log) collect(first *request) []*request {
	runtime.Gosched() // whom the last group's answer woke comes along: 46 instead of 28 of 64 callers per sync
	group, size := []*request{first}, len(first.data)
	for len(group) < groupEntries && size < groupBytes {
		select {
		case r := <-l.queue:
			group, size = append(group, r), size+len(r.data)
		default:
			return group
		}
	}
	return group
}

// commit makes a group durable or refuses it, and answers.
func (l *Log) commit(group []*request) {
	l.writer.commit(group)
	l.durable.Store(&position{l.writer.number, l.writer.size})
	for _, r := range group {
		close(r.done)
	}
}
