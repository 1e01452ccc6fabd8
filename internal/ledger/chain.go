package ledger

import (
	"bytes"
	"encoding/json"
	"log/slog"
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
			"every call needs a receipt id of its own")
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
		c.log.Warn("the clock went back", "entry", c.head.Seq+1, "now", now, "before", c.last)
	}
	c.head, c.last = audit.Head{Seq: c.head.Seq + 1, Hash: hash}, now
	c.tree.Add(audit.Leaf(lines[begin:]))
	return nil
}

func unrecordableError(kind string, err error) error {
	return bailey.Invalid.Wrap(err, "the "+kind+" cannot be recorded",
		"an entry is one JSON object of at most 64 KiB: shorten the call")
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
		return bailey.Internal.Wrap(err, "the plan has no JSON form", "")
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
