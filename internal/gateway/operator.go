package gateway

import (
	"context"
	"fmt"

	"bailey"
)

// Operator says by what right an operator verb comes. It guards against accident and is no wall: the
// client says it of itself, and every process of the user's uid could. Ledger events carry it.
type Operator string

const (
	Terminal Operator = "terminal" // stdin and stdout are a terminal
	Env      Operator = "env"      // BAILEY_OPERATOR=1 together with --yes
)

// operated lets only queries of an operator reach act.
func operated(act Verb) Verb {
	return func(ctx context.Context, q Query, from bailey.Call) (any, error) {
		if err := q.Operator.may(q.Verb); err != nil {
			return nil, err
		}
		return act(ctx, q, from)
	}
}

// may refuses a verb to all who are no operator.
func (o Operator) may(verb string) error {
	if o != Terminal && o != Env {
		return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s is an operator verb", verb),
			Hint: "use it in a terminal, or set BAILEY_OPERATOR=1 and give --yes"}
	}
	return nil
}
