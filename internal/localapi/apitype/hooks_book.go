package apitype

import (
	"time"

	"bailey/internal/localapi"
)

// HooksEvent is the ledger event for a hooks.json that was applied. Its data is an [appliedHooks].
const HooksEvent = "hooks.apply"

// HooksName is the file in the home that operators edit. keptHooks is the directory in which each applied file is
// stored by its digest.
const HooksName, KeptHooks = "hooks.json", "applied-hooks"

// AppliedHooks is the hooks.json that an operator applied last. The zero value has no hooks.
type AppliedHooks struct {
	Digest   string            `json:"digest,omitempty"`   // SHA-256 of the file, hex
	UserHome string            `json:"userHome,omitempty"` // the value of ~/, for every user who starts the gateway
	Hooks    int               `json:"hooks"`              // number of hooks
	At       time.Time         `json:"at,omitzero"`
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

func (a AppliedHooks) ID() string { return a.Digest + " " + a.UserHome }

func FileDigest(text []byte) string {
	if text == nil {
		return ""
	}
	return DigestOf(string(text))
}
