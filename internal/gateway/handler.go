package gateway

import (
	"bytes"
	"context"
	"encoding/json"

	"bailey"
	"bailey/internal/localapi"
)

// Caller is the sender of a query or a command: its principal, its session and its directory.
type Caller struct {
	bailey.Call
	Operator localapi.Operator // "" for a query
}

// Handler answers one query or command.
type Handler struct {
	Name    string
	Command bool
	serve   func(ctx context.Context, request json.RawMessage, from Caller) (any, error)
}

// answer serves a query. For a command the query must state the right of an operator.
func (h Handler) answer(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	if h.Command {
		if err := checkOperator(q.Operator, h.Name); err != nil {
			return nil, err
		}
	}
	return h.serve(ctx, q.Request, Caller{from, q.Operator})
}

// Handle returns the handler of an endpoint. A request with an unknown field is refused: it may be of another version.
func Handle[Request, Answer any](e localapi.Endpoint[Request, Answer],
	serve func(ctx context.Context, r Request, from Caller) (Answer, error)) Handler {
	return Handler{e.Name, e.Command, func(ctx context.Context, request json.RawMessage, from Caller) (any, error) {
		var r Request
		if len(request) > 0 {
			d := json.NewDecoder(bytes.NewReader(request))
			d.DisallowUnknownFields()
			d.UseNumber()
			if err := d.Decode(&r); err != nil {
				return nil, bailey.Invalid.Wrap(err, "cannot read the request "+e.Name,
					"client and gateway may be of two versions: bailey gateway stop ends the running one")
			}
		}
		return serve(ctx, r, from)
	}}
}
