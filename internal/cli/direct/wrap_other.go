//go:build !linux

package direct

import (
	"context"

	"bailey"
)

// wrapAgent returns an error, because this platform has no cage for an agent.
func (a *commands) wrapAgent(context.Context, wrapFlags, []string) error {
	return bailey.Unavailable.New("this platform has no cage that would hold an agent",
		"use Linux; bailey init --claude-code has the agent's calls decided here, and does not confine it")
}
