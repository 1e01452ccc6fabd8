package server

import (
	"context"
	"strings"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/hostapi"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/sandbox"
	"bailey/internal/workspace"
)

// newSandboxRunner returns the runner of calls on sandboxes. The host of sandboxes of the home starts when a call needs it.
func (s *Server) newSandboxRunner(home localapi.Home) bailey.Runner {
	return &sandbox.Runner{Inventories: home.Path("inventories"),
		Host: func() (*hostapi.Client, error) { return hostapi.Here(home) },
		Network: func() hostapi.Network {
			said := s.networkSettings()
			return hostapi.Network{Endpoints: said.For("sandbox.create"), Upstream: said.Upstream, ByName: said.ByName}
		}}
}

// recordSandboxEntry is the operator command: it writes the ledger entry before a person works in a sandbox.
func (s *Server) recordSandboxEntry(ctx context.Context, asked apitype.SandboxEntering, from gateway.Caller) (none localapi.None, err error) {
	if asked.Sandbox == "" || asked.Action == "" {
		return none, bailey.Invalid.New("the event names no sandbox or no action", "")
	}
	asked.Operator, asked.Person = from.Operator, from.Principal.Person
	event, err := s.redactValue(from.Session.ID, asked)
	if err != nil {
		return none, err
	}
	return none, s.scribe.recordEvent(ctx, apitype.SandboxEnterEvent, event)
}

// newCallRunner returns the runner of calls that each have a machine of their own, from the images of the settings.
func (s *Server) newCallRunner(home localapi.Home) bailey.Runner {
	return &sandbox.CallRunner{Host: func() (*hostapi.Client, error) { return hostapi.Here(home) },
		Masks: workspace.Masks(string(home), workspace.Homes()),
		Choose: func(id bailey.CapabilityID) sandbox.MachineChoice {
			packName, _, _ := strings.Cut(string(id), ".")
			m := s.settings.Applied().MicroVM
			return sandbox.MachineChoice{Image: m.ImageFor(packName), MemoryMB: m.MemoryMB}
		}}
}
