//go:build !linux

package wrap

import "bailey"

// NewWorks returns r: without a cage of ours there is none with more in it, and r refuses what wants one.
func NewWorks(r bailey.Runner, _ string, _ func(bailey.SessionID) bool) bailey.Runner { return r }

// Sweep has nothing to do where no home is kept.
func Sweep(string) ([]string, error) { return nil, nil }
