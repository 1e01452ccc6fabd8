//go:build !linux

package jail

import (
	"context"

	"bailey"
)

// Jail builds cages. There are none on this platform.
type Jail struct{}

var errPlatform = &bailey.Error{Kind: bailey.Unavailable,
	Message: "this platform has no cage: the jail needs Linux namespaces",
	Hint:    "run bailey on Linux, or in a Linux virtual machine"}

// New refuses.
func New(Config) (*Jail, error) { return nil, errPlatform }

// Plan refuses.
func (*Jail) Plan(context.Context, bailey.Job) (bailey.Run, error) { return nil, errPlatform }

// Probe refuses.
func (*Jail) Probe(context.Context) error { return errPlatform }

// Close does nothing.
func (*Jail) Close() error { return nil }

// Diagnose names what is missing: everything.
func (*Jail) Diagnose(context.Context) []Layer { return []Layer{{Name: "userns", Err: errPlatform}} }
