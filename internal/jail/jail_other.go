//go:build !linux

package jail

import (
	"context"
	"os"

	"bailey"
)

// Bare is whether this platform has no cage, so that calls are held by policy alone.
const Bare = true

// Jail runs calls without a cage, which this platform does not have. See bare for what that leaves.
type Jail struct{ bare *bare }

// New returns a Jail. It starts nothing and touches nothing.
func New(cfg Config) (*Jail, error) {
	b, err := barely(cfg)
	if err != nil {
		return nil, err
	}
	return &Jail{b}, nil
}

// Plan finds, opens and checks what job needs, and starts nothing.
func (j *Jail) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	return j.bare.Plan(ctx, job)
}

// Probe says that there is no cage.
func (*Jail) Probe(context.Context) error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: "this platform has no cage: the jail needs Linux namespaces",
		Hint: "run bailey on Linux, or in a Linux virtual machine"}
}

// Installed reports whether a command means a program of this machine.
func (j *Jail) Installed(command string) bool {
	path, err := j.bare.lookup(command)
	if err == nil {
		_, err = os.Stat(path)
	}
	return err == nil
}

// Close does nothing: nothing is kept between calls.
func (*Jail) Close() error { return nil }

// Diagnose has no layer to name.
func (*Jail) Diagnose(context.Context) []Layer { return nil }

// Waiting counts no helper: what has no cage has none ready.
func (*Jail) Waiting() int { return 0 }
