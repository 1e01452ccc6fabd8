package jail

import (
	"context"

	"bailey"
)

// Jail builds cages. It is safe for concurrent use.
type Jail struct{ cfg Config }

// New returns a Jail.
func New(cfg Config) (*Jail, error) { return &Jail{cfg: cfg}, nil }

// Plan opens, checks and lays out all that job needs, and starts nothing.
func (j *Jail) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "no cage can be planned"}
}

// Probe tells whether this host can build a full cage by building one around nothing.
func (j *Jail) Probe(ctx context.Context) error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: "no cage can be built"}
}

// Close gives back what the Jail keeps between calls. Runs must have ended.
func (j *Jail) Close() error { return nil }
