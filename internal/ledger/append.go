package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"sync/atomic"

	"bailey"
	"bailey/audit"
	"bailey/internal/receipts"
)

// request is an entry that is not on the disk yet.
type request struct {
	kind    string
	body    audit.Body
	receipt bailey.ReceiptID // the receipt that an intent or outcome names
	plan    *audit.Plan      // must be in the segment before the entry; nil if it names no plan
	err     error            // owned by the writer until its group is done
}

// newRequest checks the data of a new entry.
func newRequest(kind string, data []byte) (*request, error) {
	body, err := audit.NewBody(kind, data)
	if err != nil {
		return nil, unrecordable(kind, err)
	}
	return &request{kind: kind, body: body}, nil
}

// Open records an intent. When it returns without error, the intent is on the disk, and the space for its outcome is
// reserved there. The caller must call seal exactly once, and must not pass on the result before seal returns. If seal
// returns an error, the outcome is not durable. A second call of seal is an error and writes nothing.
//
// ctx applies until the intent has its place in the ledger. After that only the disk decides.
func (l *Log) Open(ctx context.Context, in bailey.Intent) (seal func(bailey.Outcome) error, err error) {
	kept := l.keepInput(&in)
	defer func() {
		if err != nil && kept() == nil { // no caller will ask for it
			l.bodies.remove(in.Receipt, receipts.InputPart)
		}
	}()
	data, err := json.Marshal(in)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "the intent has no JSON form", Err: err}
	}
	r, err := newRequest(audit.KindIntent, data)
	if err != nil {
		return nil, err
	}
	r.receipt = in.Receipt
	if err := l.submit(ctx, r); err != nil {
		return nil, err
	}
	var sealed atomic.Bool
	return func(o bailey.Outcome) error {
		if sealed.Swap(true) {
			return &bailey.Error{Kind: bailey.Conflict, Message: "receipt " + string(in.Receipt) + " is sealed already"}
		}
		o.Receipt, o.InputBody = in.Receipt, kept()
		return l.seal(o)
	}, nil
}

func (l *Log) seal(o bailey.Outcome) error {
	l.keepOutput(&o)
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
	r, err := newRequest(audit.KindOutcome, data)
	if err != nil {
		return err
	}
	r.receipt, r.plan = o.Receipt, plan
	return l.submit(context.Background(), r)
}

// Note records any other event. data must encode as a JSON object; nil becomes an empty one. When Note returns without
// error, the event is on the disk.
func (l *Log) Note(ctx context.Context, kind string, data any) error {
	return l.NoteCaged(ctx, kind, data, nil)
}

// NoteCaged is Note for an event in a cage. The ledger holds the cage's plan before the event.
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
	r, err := newRequest(kind, raw)
	if err != nil {
		return err
	}
	r.plan = plan
	return l.submit(ctx, r)
}

// submit chains an entry and waits until the entry is durable or refused.
func (l *Log) submit(ctx context.Context, r *request) error {
	if ctx.Err() != nil {
		return &bailey.Error{Kind: bailey.Unavailable, Message: "the call ended before the " + r.kind + " was recorded", Err: context.Cause(ctx)}
	}
	done, err := l.enter(r)
	if err != nil {
		return err
	}
	select {
	case l.wake <- struct{}{}:
	default: // the writer looks again in any case
	}
	<-done
	return r.err
}

// enter gives a request its place in the chain. The returned channel is closed when the request is durable or refused.
func (l *Log) enter(r *request) (done <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, unavailable("call again: the next gateway opens the ledger anew", errors.New("ledger closed"), "the gateway is ending")
	}
	return l.pending.done, l.chain.add(l.pending, r)
}

// run is the writer's goroutine. It ends after Close, when every request that it received is answered.
func (l *Log) run() {
	defer close(l.gone)
	for {
		select {
		case <-l.wake:
			runtime.Gosched() // the callers that the last answer woke can join this group
			l.flush()
		case <-l.stop:
			l.flush()
			return
		}
	}
}

// flush makes the waiting requests durable or refuses them, and answers them.
func (l *Log) flush() {
	l.rotate()
	g := l.take()
	l.commit(g)
	l.durable.Store(l.writer.position())
	close(g.done)
	g.clear()
	if cap(g.lines) > spareBytes {
		g.lines = nil
	}
	l.spare = g
}

// spareBytes bounds the memory of a group that is kept for the next group.
const spareBytes = 1 << 20

// take takes the filled group and leaves another one to be filled.
func (l *Log) take() *group {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.pending
	g.end, g.open = l.chain.tip, len(l.chain.account.open)
	l.pending, l.spare = l.spare, nil
	l.pending.done = make(chan struct{})
	return g
}

// commit makes a group durable. It refuses the requests for which this is impossible.
func (l *Log) commit(g *group) {
	w := &l.writer
	if w.alive(); w.dead != nil {
		l.remake(g, nobody, w.dead)
		return
	}
	if g.opens() {
		if err := w.spare(0); err != nil {
			l.remake(g, notIntents, err)
		}
	}
	if err := w.reserve(g); err != nil {
		l.remake(g, outcomes, err) // their space was reserved with their intents
	}
	if len(g.lines) == 0 {
		return
	}
	if err := w.put(g); err != nil {
		l.remake(g, nobody, err)
	}
}

func nobody(*request) bool     { return false }
func outcomes(r *request) bool { return r.kind == audit.KindOutcome }

func notIntents(r *request) bool { return r.kind != audit.KindIntent }

// remake refuses the requests of a group for which keep returns false. It chains the others again, and then the pending
// group.
func (l *Log) remake(g *group, keep func(*request) bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chain.rewind(l.writer.end, l.pending, g)
	for _, r := range g.requests {
		if !keep(r) {
			r.err = err
		}
	}
	l.chain.again(g)
	g.end, g.open = l.chain.tip, len(l.chain.account.open)
	l.chain.again(l.pending)
}
