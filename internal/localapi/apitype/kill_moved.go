package apitype

import (
	"time"
)

// Killed describes that the kill switch is on. The zero Killed means that calls are carried.
type Killed struct {
	At     time.Time `json:"at,omitzero"`
	Reason string    `json:"reason,omitempty"`
	Person string    `json:"person,omitempty"`
	Calls  int       `json:"calls"` // running calls that were ended
}

// On reports whether the switch is on.
func (k Killed) On() bool { return !k.At.IsZero() }
