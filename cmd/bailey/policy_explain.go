package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"bailey"
	"bailey/internal/policy"
	"bailey/internal/receipts"
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// reconsidered is a past call with its decision, and the decision of the current policy about the same call.
type reconsidered struct {
	Receipt    bailey.ReceiptID    `json:"receipt"`
	Capability bailey.CapabilityID `json:"capability"`
	StartedAt  time.Time           `json:"startedAt"`
	DryRun     bool                `json:"dryRun,omitempty"`
	Then       decidedThen         `json:"then"`
	Now        *policy.Explanation `json:"now"`                 // null if it cannot be decided again
	Undecided  string              `json:"undecided,omitempty"` // the reason in that case
	Hidden     []string            `json:"hidden,omitempty"`    // parts of the call that are redacted in the receipt
	Marks      []string            `json:"marks,omitempty"`     // differences that limit the result
}

// decidedThen is the decision according to the receipt.
type decidedThen struct {
	Outcome  bailey.Status     `json:"outcome"`
	Decision string            `json:"decision"` // first decision of the policy; "" if there was no decision
	Rules    []bailey.Rule     `json:"rules"`
	Reason   string            `json:"reason,omitempty"`
	Approval bailey.ApprovalID `json:"approval,omitempty"`
	Policy   string            `json:"policyDigest,omitempty"`
}

func (a *app) explainReceipt(ctx context.Context, id bailey.ReceiptID, inputs bool) error {
	if inputs {
		return &bailey.Error{Kind: bailey.Invalid, Message: "a receipt holds its own inputs", Hint: "leave -i out, or name a capability"}
	}
	if err := a.begun(); err != nil {
		return err
	}
	q := wire.Query{Verb: "reconsider", Args: map[string]any{"id": id}}
	return a.patiently(func() error { return look(ctx, a, q, func(r reconsidered) { fmt.Fprintln(a.stdout, r) }) })
}

// reconsider handles `policy explain` for a receipt.
func (s *stack) reconsider(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	found, err := s.receipt(ctx, q, from)
	if err != nil {
		return nil, err
	}
	r := found.(shownReceipt).Record
	h := historian{catalog: s.shelf.Catalog(), body: func(id bailey.ReceiptID, said bailey.Body) ([]byte, error) {
		return s.ledger.Body(id, receipts.InputPart, said)
	}}
	p := h.past(r)
	out := reconsidered{Receipt: r.Intent.Receipt, Capability: r.Intent.Capability, StartedAt: r.Intent.StartedAt, DryRun: r.Intent.DryRun,
		Then: decidedThen{Outcome: r.Status(), Rules: []bailey.Rule{}}, Hidden: p.Hidden, Marks: p.Marks}
	if o := r.Outcome; o != nil {
		out.Then.Decision, out.Then.Reason, out.Then.Approval, out.Then.Policy = o.Decision, o.Reason, o.Approval, o.PolicyDigest
		if o.Decision != "" {
			out.Then.Decision = was(o).String()
		}
		out.Then.Rules = append(out.Then.Rules, o.Rules...)
	}
	if out.Undecided = s.rules.Engine().Undecidable(p); out.Undecided == "" {
		now := s.rules.Engine().Explain(p.Request)
		out.Now = &now
	}
	return out, nil
}

func (r reconsidered) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s%s, %s\n\nthen: %s", terminal.Shown(string(r.Receipt)), terminal.Shown(string(r.Capability)), dryRun(r.DryRun), r.StartedAt.Local().Format(time.DateTime), r.Then)
	if r.Now == nil {
		fmt.Fprintf(&b, "\n\nnow: nobody can tell: %s", terminal.Shown(r.Undecided))
	} else {
		fmt.Fprintf(&b, "\n\nnow: %s", r.Now)
	}
	for _, m := range r.Marks {
		fmt.Fprintf(&b, "\nto bear in mind: %s", terminal.Shown(m))
	}
	if len(r.Hidden) > 0 {
		fmt.Fprintf(&b, "\nhidden in the receipt: %s", terminal.Shown(strings.Join(r.Hidden, ", ")))
	}
	return b.String()
}

func (d decidedThen) String() string {
	var b strings.Builder
	switch {
	case d.Outcome == receipts.Open:
		return "nothing yet; the call is open"
	case d.Decision == "":
		fmt.Fprintf(&b, "nothing was decided; it ended %s", d.Outcome)
	case d.Policy == "":
		fmt.Fprintf(&b, "%s, before any rule was asked", terminal.Shown(d.Decision))
	case d.Outcome == bailey.Refused && d.Decision == bailey.Allow.String():
		fmt.Fprintf(&b, "denied, though %s allowed it", terminal.Shown(ruleNames(d.Rules)))
	case len(d.Rules) == 0:
		fmt.Fprintf(&b, "%s, by no rule", terminal.Shown(d.Decision))
	default:
		fmt.Fprintf(&b, "%s by %s", terminal.Shown(d.Decision), terminal.Shown(ruleNames(d.Rules)))
	}
	if d.Approval != "" {
		fmt.Fprintf(&b, ", approval %s, ended %s", terminal.Shown(string(d.Approval)), d.Outcome)
	}
	if d.Reason != "" {
		fmt.Fprintf(&b, "\n  %s", terminal.Shown(d.Reason))
	}
	if d.Policy != "" {
		fmt.Fprintf(&b, "\n  policy %.12s", terminal.Shown(d.Policy))
	}
	return b.String()
}
