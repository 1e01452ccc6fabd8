package server

import (
	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/localapi"
	"bailey/internal/sandbox"
)

// newSandboxRunner returns the runner of calls on sandboxes. The host of sandboxes of the home starts when a call needs it.
func newSandboxRunner(home localapi.Home) bailey.Runner {
	return &sandbox.Runner{Host: func() (*hostapi.Client, error) { return hostapi.Here(home) }}
}
