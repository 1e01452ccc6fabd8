//go:build !linux

package main

import "context"

// wallTrials returns nil, because this platform has no agent jail.
func wallTrials() []func(ctx context.Context, dir string) trial { return nil }
