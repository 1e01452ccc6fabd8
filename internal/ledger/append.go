package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
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
		return nil, unrecordableError(kind, err)
	}
	return &request{kind: kind, body: body}, nil
}

// encodeRequest is newRequest with the JSON form of data. If data has none, the error is of the kind unfit.
func encodeRequest(kind string, data any, unfit bailey.Kind) (*request, error) {
	raw, err := json.Marshal(data)
	if err != nil {
		return nil, unfit.Wrap(err, "the "+kind+" cannot be written as JSON", "")
	}
	return newRequest(kind, raw)
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
			l.bodies.removePart(in.Receipt, receipts.InputPart)
		}
	}()
	r, err := encodeRequest(audit.KindIntent, in, bailey.Invalid)
	if err != nil {
		return nil, err
	}
	r.receipt = in.Receipt
	if err := l.submitRequest(ctx, r); err != nil {
		return nil, err
	}
	var sealed atomic.Bool
	return func(o bailey.Outcome) error {
		if sealed.Swap(true) {
			return bailey.Conflict.New("receipt "+string(in.Receipt)+" is already sealed", "")
		}
		o.Receipt, o.InputBody = in.Receipt, kept()
		return l.recordOutcome(o)
	}, nil
}

func (l *Log) recordOutcome(o bailey.Outcome) error {
	l.keepOutput(&o)
	if o.EndedAt.IsZero() {
		o.EndedAt = l.now().UTC()
	}
	data, err := encodeOutcome(o)
	if err != nil {
		return bailey.Internal.Wrap(err, "cannot write the outcome as JSON", "")
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
	return l.submitRequest(context.Background(), r)
}

// Note records any other event. data must encode as a JSON object; nil becomes an empty one. When Note returns without
// error, the event is on the disk.
func (l *Log) Note(ctx context.Context, kind string, data any) error {
	return l.NoteCaged(ctx, kind, data, nil)
}

// NoteCaged is Note for an event in a cage. The ledger holds the cage's plan before the event.
func (l *Log) NoteCaged(ctx context.Context, kind string, data any, cage *bailey.Cage) error {
	switch kind {
	case audit.KindGenesis, audit.KindIntent, audit.KindOutcome, audit.KindRepair, audit.KindPlan, audit.KindSegment,
		audit.KindKey:
		return bailey.Internal.New("the ledger reserves entries of kind "+kind+" to itself", "")
	}
	if data == nil {
		data = struct{}{}
	}
	plan, err := planOf(cage)
	if err != nil {
		return err
	}
	r, err := encodeRequest(kind, data, bailey.Internal)
	if err != nil {
		return err
	}
	r.plan = plan
	return l.submitRequest(ctx, r)
}

// RecordKey records with which key the log signs from now on.
func (l *Log) RecordKey(ctx context.Context, c audit.KeyChange) error {
	r, err := encodeRequest(audit.KindKey, c, bailey.Internal)
	if err != nil {
		return err
	}
	return l.submitRequest(ctx, r)
}

// submitRequest chains an entry and waits until the entry is durable or refused.
func (l *Log) submitRequest(ctx context.Context, r *request) error {
	if ctx.Err() != nil {
		return bailey.Unavailable.Wrap(context.Cause(ctx), "the call ended before the "+r.kind+" was recorded",
			"")
	}
	done, err := l.enqueueRequest(r)
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

// enqueueRequest gives a request its place in the chain. The returned channel is closed when the request is durable or refused.
func (l *Log) enqueueRequest(r *request) (done <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, bailey.Unavailable.Wrapf(errors.New("ledger closed"),
			"call again: the next gateway opens the ledger",
			"the gateway is stopping")
	}
	return l.pending.done, l.chain.addRequest(l.pending, r)
}

// runWriter is the writer's goroutine. It ends after Close, when every request that it received is answered.
func (l *Log) runWriter() {
	defer close(l.gone)
	for {
		select {
		case <-l.wake:
			runtime.Gosched() // the callers that the last answer woke can join this group
			l.flushPending()
		case <-l.stop:
			l.flushPending()
			return
		}
	}
}

// flushPending makes the waiting requests durable or refuses them, and answers them.
func (l *Log) flushPending() {
	l.rotateSegment()
	g := l.takeGroup()
	l.commitGroup(g)
	l.durable.Store(l.writer.durableEnd())
	close(g.done)
	g.clear()
	if cap(g.lines) > spareBytes {
		g.lines = nil
	}
	l.spare = g
}

// spareBytes bounds the memory of a group that is kept for the next group.
const spareBytes = 1 << 20

// takeGroup takes the filled group and leaves another one to be filled.
func (l *Log) takeGroup() *group {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.pending
	g.end, g.open = l.chain.tip, len(l.chain.account.open)
	l.pending, l.spare = l.spare, nil
	l.pending.done = make(chan struct{})
	return g
}

// commitGroup makes a group durable. It refuses the requests for which this is impossible.
func (l *Log) commitGroup(g *group) {
	w := &l.writer
	if w.checkSegment(); w.dead != nil {
		l.refuseExcept(g, keepNone, w.dead)
		return
	}
	if g.hasIntent() {
		if err := w.checkFreeSpace(0); err != nil {
			l.refuseExcept(g, notIntents, err)
		}
	}
	if err := w.reserveSpace(g); err != nil {
		l.refuseExcept(g, isOutcome, err) // their space was reserved with their intents
	}
	if len(g.lines) == 0 {
		return
	}
	if err := w.writeGroup(g); err != nil {
		l.refuseExcept(g, keepNone, err)
	}
}

func keepNone(*request) bool    { return false }
func isOutcome(r *request) bool { return r.kind == audit.KindOutcome }

func notIntents(r *request) bool { return r.kind != audit.KindIntent }

// refuseExcept refuses the requests of a group for which keep returns false. It chains the others again, and then the pending
// group.
func (l *Log) refuseExcept(g *group, keep func(*request) bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chain.rewindTo(l.writer.end, l.pending, g)
	for _, r := range g.requests {
		if !keep(r) {
			r.err = err
		}
	}
	l.chain.refillGroup(g)
	g.end, g.open = l.chain.tip, len(l.chain.account.open)
	l.chain.refillGroup(l.pending)
}

// room bounds the data of an outcome in bytes: an entry without its number, time and kind.
const room = audit.MaxEntry - 128

// outcomeCuts shorten an outcome, in this order, until it fits. The fields that identify the call and its result (receipt,
// status, decision, executed, exit code, sizes, approval, times) are never dropped.
var outcomeCuts = []func(*bailey.Outcome){
	func(o *bailey.Outcome) { o.Argv = nil },
	func(o *bailey.Outcome) { o.Rules = bareRules(o.Rules) },
	func(o *bailey.Outcome) { o.Paths = nil },
	func(o *bailey.Outcome) { o.EnvNames = nil },
	func(o *bailey.Outcome) { o.Egress = clipEvents(o.Egress, 4) },
	func(o *bailey.Outcome) { o.Reaches = nil }, // a later decision on the same call can detect that some are missing
	func(o *bailey.Outcome) { o.Reason = clipString(o.Reason, 1024) },
	func(o *bailey.Outcome) { o.Cwd = clipString(o.Cwd, 1024) },
	func(o *bailey.Outcome) { o.Leases = clipList(o.Leases) },
	func(o *bailey.Outcome) { o.Rules = o.Rules[:min(len(o.Rules), 16)] },
	func(o *bailey.Outcome) { o.Egress = clipEvents(o.Egress, 0) },
	func(o *bailey.Outcome) { o.Cage = clipCage(o.Cage) },
	func(o *bailey.Outcome) {
		o.Status, o.Decision = bailey.Status(clipString(string(o.Status), 64)), clipString(o.Decision, 64)
		o.ManifestDigest, o.PolicyDigest = clipString(o.ManifestDigest, 128), clipString(o.PolicyDigest, 128)
		o.Approval = bailey.ApprovalID(clipString(string(o.Approval), 64))
	},
}

// encodeOutcome encodes an outcome and cuts it until it fits into an entry. If it was cut, the end of its reason says so.
func encodeOutcome(o bailey.Outcome) ([]byte, error) {
	data, err := json.Marshal(o)
	if err != nil || len(data) <= room {
		return data, err
	}
	for _, cut := range outcomeCuts {
		cut(&o)
		said := o
		said.Reason = strings.TrimSpace(o.Reason + " [receipt cut to fit the ledger]")
		if data, err = json.Marshal(said); err != nil || len(data) <= room {
			return data, err
		}
	}
	return data, nil
}

// bareRules reduces the rules to their names.
func bareRules(rules []bailey.Rule) []bailey.Rule {
	out := make([]bailey.Rule, len(rules))
	for i, r := range rules {
		out[i] = bailey.Rule{ID: bailey.RuleID(clipString(string(r.ID), 64)), Source: clipString(r.Source, 128)}
	}
	return out
}

func clipList(list []string) []string {
	out := make([]string, min(len(list), 16))
	for i := range out {
		out[i] = clipString(list[i], 64)
	}
	return out
}

// clipEvents keeps the first n events of a report and counts the others.
func clipEvents(r *bailey.EgressReport, n int) *bailey.EgressReport {
	if r == nil || len(r.Events) <= n {
		return r
	}
	out := *r
	out.Events, out.Untold = r.Events[:n], r.Untold+int64(len(r.Events)-n)
	return &out
}

func clipCage(c *bailey.Cage) *bailey.Cage {
	if c == nil {
		return nil
	}
	return &bailey.Cage{Kind: clipString(c.Kind, 64), Enforced: c.Enforced, Layers: clipList(c.Layers),
		PlanDigest: clipString(c.PlanDigest, 128), Binary: clipString(c.Binary,
			1024), BinaryDigest: clipString(c.BinaryDigest, 128)}
}

// clipString shortens s to at most n bytes, between runes. A byte takes at most six in JSON; even then the results of all
// clips together fit into [room].
func clipString(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len("…")], "") + "…"
}
