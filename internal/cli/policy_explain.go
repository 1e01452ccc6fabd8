package cli

import (
	"context"
	"fmt"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

func (a *App) explainReceipt(ctx context.Context, id bailey.ReceiptID, inputs bool) error {
	if inputs {
		return &bailey.Error{Kind: bailey.Invalid, Message: "a receipt holds its own inputs", Hint: "leave -i out, or name a capability"}
	}
	if err := a.begun(); err != nil {
		return err
	}
	q := localapi.Query{Verb: "reconsider", Args: map[string]any{"id": id}}
	return a.patiently(func() error { return Query(ctx, a, q, func(r apitype.Reconsidered) { fmt.Fprintln(a.Stdout, r) }) })
}
