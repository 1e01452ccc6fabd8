//go:build !linux

package direct

import (
	"context"

	"bailey"
)

// wrapAgent returns an error, because this platform has no cage for an agent.
func (a *commands) wrapAgent(context.Context, wrapFlags, []string) error {
	return bailey.Unavailable.New("agents cannot be jailed on this platform",
		"use Linux; bailey init --claude-code lets Bailey decide the agent's calls here, but does not confine it")
}
