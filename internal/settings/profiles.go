package settings

import (
	"time"

	"bailey/internal/localapi"
)

// InUse holds the complete profiles that an operator selected last. If their files change, nothing changes until an
// operator selects them again. The zero InUse is a home without profiles.
type InUse struct {
	Profiles []UsedProfile     `json:"profiles,omitempty"` // in order; for a single value, a later profile wins
	At       time.Time         `json:"at,omitzero"`
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// UsedProfile is a profile with its name and the contents of its file.
type UsedProfile struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // SHA-256 of the file, hex
	Profile
}

func (u InUse) Digests() (list []string) {
	for _, one := range u.Profiles {
		list = append(list, one.Digest)
	}
	return list
}

// Names returns the names of the profiles in order.
func (u InUse) Names() (list []string) {
	for _, one := range u.Profiles {
		list = append(list, one.Name)
	}
	return list
}
