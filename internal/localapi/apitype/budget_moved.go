package apitype

import (
	"bailey"
)

// Account identifies a meter. A field is empty if the budget does not distinguish by it.
type Account struct {
	Budget     string              `json:"budget"`
	Session    bailey.SessionID    `json:"session,omitempty"`
	Agent      string              `json:"agent,omitempty"`
	Person     string              `json:"person,omitempty"`
	Capability bailey.CapabilityID `json:"capability,omitempty"`
}
