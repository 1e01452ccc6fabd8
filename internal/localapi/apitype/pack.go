package apitype

import (
	"bailey"
)

// RepinCommand is the verb of the operator command `pack repin`.
const RepinCommand = "repin"

// Changed lists programs of a capability whose change awaits the approval of an operator, or has been accepted.
type Changed struct {
	OK         bool                `json:"ok"`
	Changed    bool                `json:"changed"` // the new digests were accepted
	Capability bailey.CapabilityID `json:"capability"`
	Programs   []Pin               `json:"programs"`
}
