package apitype

import (
	"bailey/internal/settings"
)

// ProfileEvent is the kind of the ledger entry for profiles that took effect. Its data is an [InUse].
const ProfileEvent = "profile.use"

// ProfileState compares the file of a profile with the profile in use.
type ProfileState struct {
	Name    string            `json:"name"`
	File    string            `json:"file"`
	Digest  string            `json:"digest,omitempty"` // of the current file
	Profile *settings.Profile `json:"profile,omitempty"`
	InUse   bool              `json:"inUse"`
	Changed bool              `json:"changed,omitempty"` // in use, but the file has changed since
	Fault   string            `json:"fault,omitempty"`
	Cure    string            `json:"cure,omitempty"`
}
