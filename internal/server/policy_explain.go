package server

import (
	"context"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policyfiles"
	"bailey/internal/receipts"
)

// reconsider handles `policy explain` for a receipt.
func (s *Server) reconsider(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	found, err := s.receipt(ctx, q, from)
	if err != nil {
		return nil, err
	}
	r := found.(apitype.ShownReceipt).Record
	h := policyfiles.RequestRebuilder{Catalog: s.shelf.Catalog(), Body: func(id bailey.ReceiptID, said bailey.Body) ([]byte, error) {
		return s.ledger.Body(id, receipts.InputPart, said)
	}}
	p := h.Past(r)
	out := apitype.Reconsidered{Receipt: r.Intent.Receipt, Capability: r.Intent.Capability, StartedAt: r.Intent.StartedAt, DryRun: r.Intent.DryRun,
		Then: apitype.DecidedThen{Outcome: r.Status(), Rules: []bailey.Rule{}}, Hidden: p.Hidden, Marks: p.Marks}
	if o := r.Outcome; o != nil {
		out.Then.Decision, out.Then.Reason, out.Then.Approval, out.Then.Policy = o.Decision, o.Reason, o.Approval, o.PolicyDigest
		if o.Decision != "" {
			out.Then.Decision = policyfiles.Was(o).String()
		}
		out.Then.Rules = append(out.Then.Rules, o.Rules...)
	}
	if out.Undecided = s.Rules.Engine().Undecidable(p); out.Undecided == "" {
		now := s.Rules.Engine().Explain(p.Request)
		out.Now = &now
	}
	return out, nil
}
