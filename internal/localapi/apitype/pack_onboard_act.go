package apitype

import (
	"bailey"
	"bailey/internal/localapi"
)

// PackOnboardEvent is the operator command, and the kind of the ledger entry, for a tool whose help is read.
const PackOnboardEvent = "pack.onboard"

// OnboardEvent is the data of the ledger entry. It is written before the tool starts; the cage is that of the first
// probe.
type OnboardEvent struct {
	Tool     string   `json:"tool"`
	Probes   int      `json:"probes"` // maximum
	Depth    int      `json:"depth"`
	ReadOnly []string `json:"ro,omitempty"`
	bailey.Cage
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// OnboardQuery is the event as it is sent to the gateway, which keeps the text of the plan.
type OnboardQuery struct {
	OnboardEvent
	Plan string `json:"plan"`
}
