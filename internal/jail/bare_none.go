package jail

import (
	"context"
	"slices"
	"time"

	"bailey"
)

// None runs the calls of capabilities whose manifest says isolation: none, which policy lets pass by that waiver alone. It is
// the one runner without a cage that a call can come to where there are cages: under its own isolation, so that nothing
// falls back to it. What needs no cage is as in one: the program is found on a constant PATH, can be written by root alone
// and is compared with its digest before it starts; it has the declared and lent variables, pipes for streams, an empty
// HOME, a session that ends with the call, and no other descriptor. Beyond that it may do all that the gateway's user may.
type None struct{ bare *bare }

// NewNone returns a None. It starts nothing and touches nothing.
func NewNone(cfg Config) (*None, error) {
	b, err := barely(cfg)
	if err != nil {
		return nil, err
	}
	b.seatbelt = "" // a manifest that wants no cage is held by none, on no platform
	return &None{b}, nil
}

// Plan finds, opens and checks what job needs, and starts nothing. The receipt says that no layer holds.
func (n *None) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	frozen := slices.ContainsFunc(job.Places, func(p bailey.Place) bool { return p.Frozen != nil })
	if onlyCaged(job) || frozen {
		return nil, &bailey.Error{Kind: bailey.Internal, Message: string(job.Capability) + " runs without a cage and was given what only a cage can hold",
			Hint: "report it: its manifest should not have loaded"}
	}
	run, err := n.bare.Plan(ctx, job)
	if err != nil {
		return nil, err
	}
	r := run.(*bareRun)
	r.cage.Programs = []bailey.Program{{Path: r.cage.Binary, SHA256: r.cage.BinaryDigest}} // that earlier calls are compared with
	return r, nil
}

// onlyCaged tells of a job that wants what nothing but a cage gives.
func onlyCaged(job bailey.Job) bool {
	return job.Wall != nil || job.Network != nil || job.TTY || job.NeedsProc || job.Limits != (bailey.Limits{}) ||
		len(job.Read)+len(job.Libs)+len(job.Exec)+len(job.Hide)+len(job.FileNames) > 0
}

// CPU is what the program used, and of what it started that for which it waited.
func (r *bareRun) CPU() time.Duration { return r.cpu }
