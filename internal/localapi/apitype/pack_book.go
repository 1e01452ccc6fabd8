package apitype

import (
	"bailey/internal/packstore"
	"bailey/pack"
)

// PackProposal is a pack that could be installed, compared with the installed one.
type PackProposal struct {
	OK           bool                 `json:"ok"`
	Changed      bool                 `json:"changed"` // it was installed
	Name         string               `json:"name"`
	Version      string               `json:"version"`
	Digest       string               `json:"digest"`
	Key          string               `json:"key,omitempty"`
	Dev          bool                 `json:"dev,omitempty"`
	Capabilities int                  `json:"capabilities"`
	Differs      bool                 `json:"differs"`            // from the installed pack
	Was          *packstore.Installed `json:"was,omitempty"`      // the installed pack
	Changes      []pack.Change        `json:"changes"`            // new rights, compared with the installed pack
	Loud         []string             `json:"warnings,omitempty"` // warnings that a person must not overlook
	Downgrade    bool                 `json:"downgrade,omitempty"`
}
