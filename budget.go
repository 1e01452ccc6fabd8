package bailey

import (
	"slices"
	"time"
)

// Budget limits the resources that agents use, beyond the limits of a single call. A zero field means no limit.
type Budget struct {
	ID     string `json:"id"`
	Source string `json:"source"` // file:line
	// Since is the start of counting. Earlier calls do not count.
	Since time.Time `json:"since,omitzero"`
	// Capabilities and Agents select the calls that count. An empty list selects all.
	Capabilities []CapabilityID `json:"capabilities,omitempty"`
	Agents       []string       `json:"agents,omitempty"`
	// Separate counters: per session, per agent together with its person, per capability.
	Session    bool `json:"perSession,omitempty"`
	Agent      bool `json:"perAgent,omitempty"`
	Capability bool `json:"perCapability,omitempty"`
	// Within is the period that starts with the first counted call. After it, counting starts again. Zero means that
	// the period never ends.
	Within time.Duration `json:"within,omitempty"`

	Calls      int           `json:"calls,omitempty"`
	Concurrent int           `json:"concurrent,omitempty"` // number of calls at the same time
	Wall       time.Duration `json:"wall,omitempty"`       // run time of tools
	CPU        time.Duration `json:"cpu,omitempty"`        // as in [MeteredRun]
	Output     int64         `json:"output,omitempty"`     // bytes of tool output
}

// SameCount reports whether two budgets count the same calls in the same way. It ignores their limits.
func (b Budget) SameCount(o Budget) bool {
	return b.ID == o.ID && b.Session == o.Session && b.Agent == o.Agent && b.Capability == o.Capability &&
		b.Within == o.Within &&
		slices.Equal(b.Capabilities, o.Capabilities) && slices.Equal(b.Agents, o.Agents)
}

// Counts reports whether the budget applies to a call.
func (b Budget) Counts(r Request) bool {
	return (len(b.Agents) == 0 || slices.Contains(b.Agents, r.Principal.Agent)) &&
		(len(b.Capabilities) == 0 || slices.Contains(b.Capabilities, r.Capability))
}
