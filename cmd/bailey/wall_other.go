//go:build !linux

package main

import "context"

// wallTrials is empty where there is no wall.
func wallTrials() []func(ctx context.Context, dir string) trial { return nil }
