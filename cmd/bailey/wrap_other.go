//go:build !linux

package main

import (
	"context"

	"bailey"
)

// wrap is refused where no cage can hold an agent.
func (a *app) wrap(context.Context, wrapping, []string) error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: "this platform has no cage that would hold an agent", Hint: "use Linux; bailey init --claude-code has the agent's calls decided here, and does not confine it"}
}
