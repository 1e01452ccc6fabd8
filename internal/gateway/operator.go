package gateway

import (
	"context"
	"fmt"

	"bailey"
	"bailey/internal/localapi"
)

// operated adds a check of operator rights to act.
func operated(act Verb) Verb {
	return func(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
		if err := may(q.Operator, q.Verb); err != nil {
			return nil, err
		}
		return act(ctx, q, from)
	}
}

// may returns an error if o is not a valid operator right.
func may(o localapi.Operator, verb string) error {
	if o != localapi.Terminal && o != localapi.Env {
		return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s is an operator verb", verb),
			Hint: "use it in a terminal, or set BAILEY_OPERATOR=1 and give --yes"}
	}
	return nil
}
