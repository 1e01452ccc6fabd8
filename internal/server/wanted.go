package server

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/receipts"
)

func filterOf(args map[string]any) (f receipts.Filter, err error) {
	b, err := json.Marshal(args["filter"])
	if err != nil {
		return f, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields() // ignoring an unknown field would return too many receipts
	if err := dec.Decode(&f); err != nil {
		return f, &bailey.Error{Kind: bailey.Invalid, Message: "the filter is none", Hint: "client and gateway may be of two versions: bailey gateway stop ends the running one", Err: err}
	}
	return f, nil
}

// records is a query: it returns complete receipts.
func (s *Server) records(ctx context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	f, err := filterOf(q.Args)
	if err != nil {
		return nil, err
	}
	return s.index.Find(ctx, f)
}

// receipts is a query: it returns the rows of a list.
func (s *Server) receipts(ctx context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	f, err := filterOf(q.Args)
	if err != nil {
		return nil, err
	}
	page, err := s.index.Find(ctx, f)
	return apitype.NewReceiptList(page), err
}

// receipt is a query: it returns one complete receipt. If the index lacks it, or the outcome of a call that no longer
// runs, the ledger is read: a process that can write the index file could have removed it.
func (s *Server) receipt(ctx context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	id := bailey.ReceiptID(text(q.Args, "id"))
	f := receipts.Filter{ID: id, Limit: 1}
	if !apitype.Possible(id) {
		return nil, apitype.NoReceipt(id)
	}
	page, err := s.index.Find(ctx, f)
	if err == nil && (len(page.Records) == 0 || page.Records[0].Outcome == nil && !s.isLive(id)) {
		page, err = s.index.Scan(ctx, f)
	}
	if err != nil {
		return nil, err
	}
	if len(page.Records) == 0 {
		return nil, apitype.NoReceipt(id)
	}
	return s.show(page.Records[0]), nil
}

func (s *Server) isLive(id bailey.ReceiptID) bool {
	calls, _ := s.live.Now()
	return slices.ContainsFunc(calls, func(c apitype.LiveCall) bool { return c.Receipt == id })
}
