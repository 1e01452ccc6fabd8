package localapi

import (
	"context"
	"encoding/json"
)

// Endpoint names a query or a command of the gateway, with the types of its request and of its answer. Both are encoded
// as JSON. Package apitype declares all endpoints.
type Endpoint[Request, Answer any] struct {
	Name    string
	Command bool // it changes state, so a request must state the right of an operator
}

// NewQuery returns an endpoint that only reads.
func NewQuery[Request, Answer any](name string) Endpoint[Request, Answer] {
	return Endpoint[Request, Answer]{Name: name}
}

// NewCommand returns an endpoint that changes state, and that only operators may use.
func NewCommand[Request, Answer any](name string) Endpoint[Request, Answer] {
	return Endpoint[Request, Answer]{Name: name, Command: true}
}

// None is the request or the answer of an endpoint that has none.
type None struct{}

// Ask sends a request to the gateway and returns its answer. It starts a gateway if c can.
func (e Endpoint[Request, Answer]) Ask(ctx context.Context, c *Client, r Request) (Answer, error) {
	return e.Do(ctx, c, "", r)
}

// Do is like Ask, by the right of an operator.
func (e Endpoint[Request, Answer]) Do(ctx context.Context, c *Client, op Operator, r Request) (a Answer, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	err = c.askUntilHeard(ctx, Query{Verb: e.Name, Request: body, Operator: op}, nil, nil, &a)
	return a, err
}
