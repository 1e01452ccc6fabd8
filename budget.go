package bailey

import (
	"slices"
	"time"
)

// Budget bounds what agents use up, beyond the bounds of a single call. A bound of zero does not bind.
type Budget struct {
	ID     string `json:"id"`
	Source string `json:"source"` // file:line
	// Since is when it began to count: calls before that are none of its.
	Since time.Time `json:"since,omitzero"`
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

// SameCount reports whether two budgets count the same calls in the same way, whatever their bounds.
func (b Budget) SameCount(o Budget) bool {
	return b.ID == o.ID && b.Session == o.Session && b.Agent == o.Agent && b.Capability == o.Capability && b.Within == o.Within &&
		slices.Equal(b.Capabilities, o.Capabilities) && slices.Equal(b.Agents, o.Agents)
}

// Counts reports whether a call is one that the budget bounds.
func (b Budget) Counts(r Request) bool {
	return (len(b.Agents) == 0 || slices.Contains(b.Agents, r.Principal.Agent)) &&
		(len(b.Capabilities) == 0 || slices.Contains(b.Capabilities, r.Capability))
}
