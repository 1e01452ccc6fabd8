package settings

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
)

// Fleet says what the control plane may do on this gateway. The zero value permits no calls.
type Fleet struct {
	// Calls are the capabilities that people may call through the control plane. The policy decides each call as well.
	Calls []bailey.CapabilityID `json:"calls,omitempty"`
}

// maxFleetCalls limits the capabilities of the setting fleet.
const maxFleetCalls = 64

// fleetPacks are the packs of which the control plane may call capabilities.
var fleetPacks = []string{"sandbox.", "source."}

// Permits reports whether the control plane may call a capability.
func (f Fleet) Permits(id bailey.CapabilityID) bool { return slices.Contains(f.Calls, id) }

func (r reader) readFleet(n ast.Node) (f Fleet) {
	r.readKeys(n, "part of fleet", strictyaml.Fields{"calls": storeIn(&f.Calls, r.readFleetCalls)})
	return f
}

// readFleetCalls reads capabilities. There are no patterns: a later version of a pack must not permit more.
func (r reader) readFleetCalls(n ast.Node) (list []bailey.CapabilityID) {
	for _, item := range r.readItems(n, "calls must be a list of capabilities such as sandbox.create") {
		id := bailey.CapabilityID(r.readWord(item, maxWord))
		known := slices.ContainsFunc(fleetPacks, func(p string) bool {
			name, ok := strings.CutPrefix(string(id), p)
			return ok && name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
		})
		if !known || slices.Contains(list, id) || len(list) == maxFleetCalls {
			r.AddFault(item, "calls must have capabilities of the packs sandbox and source, each once, and at most %d",
				maxFleetCalls)
		}
		list = append(list, id)
	}
	return list
}
