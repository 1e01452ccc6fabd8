package apitype

import (
	"fmt"
	"strings"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/packstore"
	"bailey/internal/terminal"
	"bailey/pack"
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

const PackCompareQuery = "pack.compare"

func (p PackProposal) Summary() string {
	var b strings.Builder
	by := "signed by " + p.Key
	if p.Dev {
		by = "unsigned"
	}
	fmt.Fprintf(&b, "%s %s, %s, %s, digest %s\n", p.Name, p.Version, Counts(p.Capabilities, "capability"), by, p.Digest)
	if p.Was != nil {
		fmt.Fprintf(&b, "in place of %s, digest %s\n", p.Was.Version, p.Was.Digest)
	}
	b.WriteString(packstore.ChangeLines(p.Changes))
	if len(p.Changes) == 0 {
		b.WriteString("  it may do nothing that what is installed could not\n")
	}
	for _, w := range p.Loud {
		terminal.WriteLine(&b, '!', w)
	}
	return b.String()
}

// KeyChanged is the answer of trust and untrust.
type KeyChanged struct {
	OK      bool     `json:"ok"`
	Changed bool     `json:"changed"`
	Name    string   `json:"name"`
	Key     string   `json:"key,omitempty"`   // the line of the key file
	Packs   []string `json:"packs,omitempty"` // installed packs that it signed
}

const PackKeysQuery = "pack.keys"

// Verbs of the queries of list and show.
const PacksQuery, PackQuery = "packs", "pack"

type PackRows struct {
	Packs    []packstore.Row     `json:"packs"`
	Findings []packstore.Finding `json:"findings"`
}

// PackShown is one pack with its capabilities.
type PackShown struct {
	packstore.Row
	Tools []Capability `json:"tools"`
}

// PackOnboardEvent is the operator command, and the kind of the ledger entry, for a tool whose help is read.
const PackOnboardEvent = "pack.onboard"

// OnboardEvent is the data of the ledger entry. It is written before the tool starts; the cage is that of the first
// probe.
type OnboardEvent struct {
	Tool     string   `json:"tool"`
	Probes   int      `json:"probes"` // maximum
	Depth    int      `json:"depth"`
	ReadOnly []string `json:"ro,omitempty"`
	bailey.Cage
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// OnboardQuery is the event as it is sent to the gateway, which keeps the text of the plan.
type OnboardQuery struct {
	OnboardEvent
	Plan string `json:"plan"`
}

// Pin records a program as a call ran it. It is written at the first use, and for a program that only root can write
// also after each change.
type Pin struct {
	bailey.Program
	Command string `json:"command,omitempty"` // command name in the manifest, only for the tool itself
}
