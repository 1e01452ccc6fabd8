package apitype

import (
	"bailey/internal/hooks"
)

// HooksRunVerb is the command that runs the chain of an event, and its ledger event.
const HooksRunVerb = "hooks.run"

// ChainRun is the result of a chain.
type ChainRun struct {
	OK     bool          `json:"ok"` // not blocked
	Effect string        `json:"effect"`
	Frame  string        `json:"frame,omitempty"` // the resulting frame
	Reason string        `json:"reason,omitempty"`
	Hint   string        `json:"hint,omitempty"`
	Said   string        `json:"message,omitempty"` // message of the hooks to the user
	Hooks  []hooks.Asked `json:"hooks"`
}
