package ledger

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"bailey"
	"bailey/audit"
)

// chain is the place of the next entry: after the durable entries and the groups on their way to the disk. Each caller
// adds its own entry while the disk is busy with the group before. [Log.mu] guards it.
type chain struct {
	tip
	account openReceipts
	plans   knownPlans // the plans in this segment
	log     *slog.Logger
	now     func() time.Time
}

// tip is the position after an entry.
type tip struct {
	head audit.Head
	tree audit.Tree // over the entries up to head
	last time.Time  // time of the last of them
}

// group holds the requests that go to the disk with one write and one sync. Until the writer takes it, [Log.mu] guards
// it.
type group struct {
	requests []*request
	lines    []byte
	moves    []undoEntry // changes of the account
	plans    []string    // digests of the plans in the group
	end      tip         // position after the group
	open     int         // open receipts after the group
	done     chan struct{}
}

// clear makes the group ready to be filled again. Callers that wait for it are not affected.
func (g *group) clear() {
	clear(g.requests)
	g.requests, g.lines, g.moves, g.plans = g.requests[:0], g.lines[:0], g.moves[:0], nil
}

// hasIntent reports whether the group holds an intent.
func (g *group) hasIntent() bool {
	return slices.ContainsFunc(g.requests, func(r *request) bool { return r.kind == audit.KindIntent })
}

// addRequest adds a request to the group, after its plan. If no ledger can hold the request, only this request is refused.
func (c *chain) addRequest(g *group, r *request) error {
	if err := c.addPlan(g, r.plan); err != nil {
		return err
	}
	switch m, err := c.updateReceipts(r); {
	case err != nil:
		return bailey.Conflict.Wrap(err, "the "+r.kind+" cannot be recorded",
			"use a different receipt ID for each call")
	case m.receipt != "":
		g.moves = append(g.moves, m)
	}
	if err := c.addEntry(g, r.kind, r.body); err != nil {
		if r.receipt != "" {
			c.account.undoChanges(g.moves[len(g.moves)-1:])
			g.moves = g.moves[:len(g.moves)-1]
		}
		return err
	}
	g.requests = append(g.requests, r)
	return nil
}

// updateReceipts applies a request to the account.
func (c *chain) updateReceipts(r *request) (undoEntry, error) {
	switch r.kind {
	case audit.KindIntent:
		return c.account.addIntent(r.receipt, c.head.Seq+1)
	case audit.KindOutcome:
		return c.account.addOutcome(r.receipt)
	}
	return undoEntry{}, nil
}

// addEntry adds one entry to the group.
func (c *chain) addEntry(g *group, kind string, body audit.Body) error {
	now, begin := c.now(), len(g.lines)
	lines, hash, err := body.Append(g.lines, c.head, now)
	if err != nil {
		return unrecordableError(kind, err)
	}
	g.lines = lines
	if now = now.Round(0); now.Before(c.last) {
		c.log.Warn("the clock went backwards", "entry", c.head.Seq+1, "now", now, "before", c.last)
	}
	c.head, c.last = audit.Head{Seq: c.head.Seq + 1, Hash: hash}, now
	c.tree.Add(audit.Leaf(lines[begin:]))
	return nil
}

func unrecordableError(kind string, err error) error {
	return bailey.Invalid.Wrap(err, "the "+kind+" cannot be recorded",
		"shorten the call: an entry must be one JSON object of at most 64 KiB")
}

// addPlan adds a plan to the group, unless the segment holds it already.
func (c *chain) addPlan(g *group, p *audit.Plan) error {
	if p == nil || c.plans.hasPlan(p.Digest) {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // otherwise one byte would take six
	if err := enc.Encode(p); err != nil {
		return bailey.Internal.Wrap(err, "cannot write the plan as JSON", "")
	}
	body, err := audit.NewBody(audit.KindPlan, bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	if err != nil {
		return unrecordableError(audit.KindPlan, err)
	}
	if err := c.addEntry(g, audit.KindPlan, body); err != nil {
		return err
	}
	c.plans.addPlans(p.Digest)
	g.plans = append(g.plans, p.Digest)
	return nil
}

// rewindTo reverts groups, which must be given last first. The chain then ends at to again.
func (c *chain) rewindTo(to tip, groups ...*group) {
	for _, g := range groups {
		c.account.undoChanges(g.moves)
		for _, digest := range g.plans {
			delete(c.plans, digest)
		}
	}
	c.tip = to
}

// refillGroup refills a reverted group. It refuses requests that no longer fit.
func (c *chain) refillGroup(g *group) {
	requests := append([]*request(nil), g.requests...)
	g.clear()
	for _, r := range requests {
		if r.err == nil {
			r.err = c.addRequest(g, r)
		}
	}
}

// openReceipts records the open receipts, and the receipts that the current segment opened or began with. It forgets all
// others, so that memory does not grow with the ledger. An ID is 128 random bits; if an ID of an older segment comes
// again, only verification detects it. The zero value is ready to use. [Log.mu] guards it.
type openReceipts struct {
	open map[bailey.ReceiptID]uint64 // number of the intent's entry, or its place among the receipts carried over
	seen map[[16]byte]struct{}       // half of the SHA-256 of each ID
}

// undoEntry is a change of the account that can be undone.
type undoEntry struct {
	receipt bailey.ReceiptID
	seq     uint64 // of the intent
	closed  bool
}

// addIntent opens a receipt with the entry numbered seq.
func (a *openReceipts) addIntent(id bailey.ReceiptID, seq uint64) (undoEntry, error) {
	if a.seen == nil {
		a.open, a.seen = map[bailey.ReceiptID]uint64{}, map[[16]byte]struct{}{}
	}
	key := keyOf(id)
	if _, twice := a.seen[key]; twice {
		return undoEntry{}, fmt.Errorf("receipt %s already has an intent", id)
	}
	a.seen[key] = struct{}{}
	a.open[id] = seq
	return undoEntry{receipt: id, seq: seq}, nil
}

// addOutcome closes a receipt, which must be open.
func (a *openReceipts) addOutcome(id bailey.ReceiptID) (undoEntry, error) {
	seq, ok := a.open[id]
	if !ok {
		return undoEntry{}, fmt.Errorf("receipt %s is not open", id)
	}
	delete(a.open, id)
	return undoEntry{receipt: id, seq: seq, closed: true}, nil
}

// undoChanges reverts moves, the last one first.
func (a *openReceipts) undoChanges(moves []undoEntry) {
	for _, m := range slices.Backward(moves) {
		if m.closed {
			a.open[m.receipt] = m.seq
			continue
		}
		delete(a.open, m.receipt)
		delete(a.seen, keyOf(m.receipt))
	}
}

// orderedIDs returns the open receipts in the order of their intents.
func (a *openReceipts) orderedIDs() []bailey.ReceiptID {
	return slices.SortedFunc(maps.Keys(a.open),
		func(x, y bailey.ReceiptID) int { return cmp.Compare(a.open[x], a.open[y]) })
}

// copyOpen returns the account at the beginning of a new segment.
func (a *openReceipts) copyOpen() (next openReceipts) {
	for i, id := range a.orderedIDs() {
		next.addIntent(id, uint64(i)+1) // each ID is open once
	}
	return next
}

func keyOf(id bailey.ReceiptID) [16]byte {
	sum := sha256.Sum256([]byte(id))
	return [16]byte(sum[:16])
}

// maxPlans bounds the plans that the writer knows to be in the ledger, at about 100 bytes each.
const maxPlans = 4096

// planOf returns the plan that the ledger must hold before an entry that names it, or nil if the entry names no plan.
// It refuses a text that does not match its digest, because no verification would accept the entry.
func planOf(c *bailey.Cage) (*audit.Plan, error) {
	if c == nil || c.PlanDigest == "" {
		return nil, nil
	}
	var named audit.Hash
	if err := named.UnmarshalText([]byte(c.PlanDigest)); err != nil || c.Plan != "" &&
		sha256.Sum256([]byte(c.Plan)) != named {
		return nil, bailey.Internal.New("the jail's plan does not match its digest",
			"report it with the gateway's log")
	}
	return &audit.Plan{Digest: c.PlanDigest, Text: c.Plan, Redacted: c.Plan == ""}, nil
}

// knownPlans holds the digests of plans in the ledger. If it forgets a plan, the plan is recorded again.
type knownPlans map[string]struct{}

func (k *knownPlans) addPlans(digests ...string) {
	for _, d := range digests {
		if *k == nil || len(*k) >= maxPlans {
			*k = knownPlans{}
		}
		(*k)[d] = struct{}{}
	}
}

func (k knownPlans) hasPlan(digest string) bool { _, ok := k[digest]; return ok }
