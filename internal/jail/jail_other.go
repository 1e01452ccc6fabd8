//go:build !linux

package jail

import (
	"context"
	"os"

	"bailey"
)

// Bare tells whether this platform has no cage, so that only policy restricts calls.
const Bare = true

// Jail runs calls without a cage, which this platform does not have. See bare for the remaining protections.
type Jail struct{ *bare }

// New returns a Jail. It starts no process and changes no file.
func New(cfg Config) (*Jail, error) {
	b, err := bareFromConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &Jail{b}, nil
}

// Probe returns an error, because this platform has no cage.
func (*Jail) Probe(context.Context) error {
	return bailey.Unavailable.New("this platform has no jail, which needs Linux namespaces",
		"run bailey on Linux, or in a Linux virtual machine")
}

// Installed reports whether command names a program on this machine.
func (j *Jail) Installed(command string) bool {
	path, err := lookUpCommand(command, j.path)
	if err == nil {
		_, err = os.Stat(path)
	}
	return err == nil
}

// Close does nothing: a Jail keeps nothing between calls here.
func (*Jail) Close() error { return nil }

// Diagnose returns nil: there are no layers.
func (*Jail) Diagnose(context.Context) []Layer { return nil }

// Waiting returns 0: there are no helpers.
func (*Jail) Waiting() int { return 0 }
