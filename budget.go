package bailey

import (
	"slices"
	"time"
)

// Budget bounds what agents use up, beyond the bounds of a single call. A bound of zero does not bind.
type Budget struct {
	ID     string `json:"id"`
	Source string `json:"source"` // file:line
	// Capabilities and Agents say whose calls count; none means all.
	Capabilities []CapabilityID `json:"capabilities,omitempty"`
	Agents       []string       `json:"agents,omitempty"`
	// What is counted apart: by session, by agent together with its person, by capability.
	Session    bool `json:"perSession,omitempty"`
	Agent      bool `json:"perAgent,omitempty"`
	Capability bool `json:"perCapability,omitempty"`
	// Within is a span from the first call that counts, after which counting begins anew. Zero: there is no end.
	Within time.Duration `json:"within,omitempty"`

	Calls      int           `json:"calls,omitempty"`
	Concurrent int           `json:"concurrent,omitempty"` // at one time
	Wall       time.Duration `json:"wall,omitempty"`       // while tools ran
	CPU        time.Duration `json:"cpu,omitempty"`        // as [MeteredRun] has it
	Output     int64         `json:"output,omitempty"`     // bytes that tools wrote
}

// Counts reports whether a call is one that the budget bounds.
func (b Budget) Counts(r Request) bool {
	return (len(b.Agents) == 0 || slices.Contains(b.Agents, r.Principal.Agent)) &&
		(len(b.Capabilities) == 0 || slices.Contains(b.Capabilities, r.Capability))
}
