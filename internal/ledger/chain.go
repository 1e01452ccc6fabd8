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
	account account
	plans   known // the plans in this segment
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
	moves    []move   // changes of the account
	plans    []string // digests of the plans in the group
	end      tip      // position after the group
	open     int      // open receipts after the group
	done     chan struct{}
}

// clear makes the group ready to be filled again. Callers that wait for it are not affected.
func (g *group) clear() {
	clear(g.requests)
	g.requests, g.lines, g.moves, g.plans = g.requests[:0], g.lines[:0], g.moves[:0], nil
}

// opens reports whether the group holds an intent.
func (g *group) opens() bool {
	return slices.ContainsFunc(g.requests, func(r *request) bool { return r.kind == audit.KindIntent })
}

// add adds a request to the group, after its plan. If no ledger can hold the request, only this request is refused.
func (c *chain) add(g *group, r *request) error {
	if err := c.plan(g, r.plan); err != nil {
		return err
	}
	switch m, err := c.move(r); {
	case err != nil:
		return &bailey.Error{Kind: bailey.Conflict, Message: "the " + r.kind + " cannot be recorded",
			Hint: "every call needs a receipt id of its own", Err: err}
	case m.receipt != "":
		g.moves = append(g.moves, m)
	}
	if err := c.entry(g, r.kind, r.body); err != nil {
		if r.receipt != "" {
			c.account.undo(g.moves[len(g.moves)-1:])
			g.moves = g.moves[:len(g.moves)-1]
		}
		return err
	}
	g.requests = append(g.requests, r)
	return nil
}

// move applies a request to the account.
func (c *chain) move(r *request) (move, error) {
	switch r.kind {
	case audit.KindIntent:
		return c.account.intent(r.receipt, c.head.Seq+1)
	case audit.KindOutcome:
		return c.account.outcome(r.receipt)
	}
	return move{}, nil
}

// entry adds one entry to the group.
func (c *chain) entry(g *group, kind string, body audit.Body) error {
	now, begin := c.now(), len(g.lines)
	lines, hash, err := body.Append(g.lines, c.head, now)
	if err != nil {
		return unrecordable(kind, err)
	}
	g.lines = lines
	if now = now.Round(0); now.Before(c.last) {
		c.log.Warn("the clock went back", "entry", c.head.Seq+1, "now", now, "before", c.last)
	}
	c.head, c.last = audit.Head{Seq: c.head.Seq + 1, Hash: hash}, now
	c.tree.Add(audit.Leaf(lines[begin:]))
	return nil
}

func unrecordable(kind string, err error) error {
	return &bailey.Error{Kind: bailey.Invalid, Message: "the " + kind + " cannot be recorded",
		Hint: "an entry is one JSON object of at most 64 KiB: shorten the call", Err: err}
}

// plan adds a plan to the group, unless the segment holds it already.
func (c *chain) plan(g *group, p *audit.Plan) error {
	if p == nil || c.plans.has(p.Digest) {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // otherwise one byte would take six
	if err := enc.Encode(p); err != nil {
		return &bailey.Error{Kind: bailey.Internal, Message: "the plan has no JSON form", Err: err}
	}
	body, err := audit.NewBody(audit.KindPlan, bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	if err != nil {
		return unrecordable(audit.KindPlan, err)
	}
	if err := c.entry(g, audit.KindPlan, body); err != nil {
		return err
	}
	c.plans.add(p.Digest)
	g.plans = append(g.plans, p.Digest)
	return nil
}

// rewind reverts groups, which must be given last first. The chain then ends at to again.
func (c *chain) rewind(to tip, groups ...*group) {
	for _, g := range groups {
		c.account.undo(g.moves)
		for _, digest := range g.plans {
			delete(c.plans, digest)
		}
	}
	c.tip = to
}

// again refills a reverted group. It refuses requests that no longer fit.
func (c *chain) again(g *group) {
	requests := append([]*request(nil), g.requests...)
	g.clear()
	for _, r := range requests {
		if r.err == nil {
			r.err = c.add(g, r)
		}
	}
}
