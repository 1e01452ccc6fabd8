package jail

import (
	"context"
	"slices"
	"time"

	"bailey"
)

// None runs the calls of capabilities whose manifest says isolation: none, which policy permits only through that
// waiver. On a platform with cages it is the only runner without one, and only under its own isolation does a call
// reach it, so that no other call falls back to it. Protections that need no cage are as in one: the program is found
// on a constant PATH, must be writable by root alone, and is compared with its digest before it starts; it has the
// declared and lent variables, pipes as streams, an empty HOME, a session that ends with the call, and no other
// descriptor. Apart from that it may do all that the gateway's user may do.
type None struct{ bare *bare }

// NewNone returns a None. It starts no process and changes no file.
func NewNone(cfg Config) (*None, error) {
	b, err := bareFromConfig(cfg)
	if err != nil {
		return nil, err
	}
	b.seatbelt = "" // isolation none means no profile on any platform
	return &None{b}, nil
}

// Plan finds, opens and checks everything that job needs. It starts nothing. The receipt says that no layer holds.
func (n *None) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	frozen := slices.ContainsFunc(job.Places, func(p bailey.Place) bool { return p.Frozen != nil })
	if onlyCaged(job) || frozen {
		return nil, bailey.Internal.New(string(job.Capability)+" runs without a cage and was given what only a cage can hold",
			"report it: its manifest should not have loaded")
	}
	run, err := n.bare.Plan(ctx, job)
	if err != nil {
		return nil, err
	}
	r := run.(*bareRun)
	// The programs are compared with those of earlier calls.
	r.cage.Programs = []bailey.Program{{Path: r.cage.Binary, SHA256: r.cage.BinaryDigest}}
	return r, nil
}

// onlyCaged reports whether job needs a feature that only a cage has.
func onlyCaged(job bailey.Job) bool {
	return job.Wall != nil || job.Network != nil || job.TTY || job.NeedsProc || job.Limits != (bailey.Limits{}) ||
		len(job.Read)+len(job.Libs)+len(job.Exec)+len(job.Hide)+len(job.FileNames) > 0
}

// CPU returns the processor time of the program and of those children for which it waited.
func (r *bareRun) CPU() time.Duration { return r.cpu }
