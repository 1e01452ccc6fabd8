package apitype

import (
	"encoding/json"
	"fmt"
	"strings"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/packstore"
	"bailey/internal/terminal"
	"bailey/pack"
)

// RepinRequest asks to accept changed programs of a capability.
type RepinRequest struct {
	ID    bailey.CapabilityID `json:"id"`
	Shown []Pin               `json:"shown"` // the changes that the operator saw; they must be all of them
}

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

// PackRequest asks for the effect of an installation, or for the installation.
type PackRequest struct {
	Path      string `json:"path"` // absolute, of a bundle or, if Dev is set, of a directory
	Dev       bool   `json:"dev,omitempty"`
	Downgrade bool   `json:"downgrade,omitempty"` // allows an older version than one installed before

	// Only for the installation: the digest of the bundle that was shown, and that of the installed pack with which it
	// was compared, "" if none.
	Digest string `json:"digest,omitempty"`
	Base   string `json:"base,omitempty"`
}

// PackName names a pack.
type PackName struct {
	Name string `json:"name"`
}

// PackKey is the key of an author of packs.
type PackKey struct {
	Key string `json:"key"` // the line of the key file
}

// PackKeyName names a trusted key.
type PackKeyName struct {
	Name string `json:"name"`
}

// PackPublication describes a bundle that is about to be published. All fields are required.
type PackPublication struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	Key     string `json:"key"`
	Dir     string `json:"dir"` // where it is published
}

// Summary returns the lines that a person must see before the installation: the pack, all new rights and the warnings.
func (p PackProposal) Summary() string {
	var b strings.Builder
	by := "signed by " + p.Key
	if p.Dev {
		by = "unsigned"
	}
	fmt.Fprintf(&b, "%s %s, %s, %s, digest %s\n", p.Name, p.Version, Counts(p.Capabilities, "capability"), by, p.Digest)
	if p.Was != nil {
		fmt.Fprintf(&b, "replaces %s, digest %s\n", p.Was.Version, p.Was.Digest)
	}
	b.WriteString(packstore.ChangeLines(p.Changes))
	if len(p.Changes) == 0 {
		b.WriteString("  it may do nothing beyond the installed version\n")
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

// PacksQuery is the name of [ListPacks].
const PacksQuery = "packs"

// PackSearch asks for packs.
type PackSearch struct {
	Words string `json:"words,omitempty"` // the packs must contain all of them; empty: all packs
}

// PackRows is the answer to a [PackSearch]. Findings are those of all packs and keys.
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

// Capability is the command-line form of a manifest.
type Capability struct {
	ID            bailey.CapabilityID `json:"id"`
	Description   string              `json:"description"`
	Pack          string              `json:"pack"`
	Version       string              `json:"version"`
	Risk          string              `json:"risk"`
	SideEffect    string              `json:"sideEffectClass"`
	Reversibility string              `json:"reversibility"`
	Isolation     string              `json:"isolation"`
	Digest        string              `json:"digest"`
	Command       string              `json:"command,omitempty"`
	Absent        bool                `json:"absent,omitempty"`  // its program is not installed on this machine
	Denied        bool                `json:"denied,omitempty"`  // the policy in use denies it for every input
	Preview       [][]string          `json:"preview,omitempty"` // command lines
	Covers        bool                `json:"previewCoversContents,omitempty"`
	Egress        []string            `json:"egress,omitempty"`  // as in the manifest
	Waivers       []string            `json:"waivers,omitempty"` // parts of the jail that it gives up: policy must name each
	InputSchema   json.RawMessage     `json:"inputSchema,omitempty"`
	OutputSchema  json.RawMessage     `json:"outputSchema,omitempty"`
}

// CapabilityList is the answer with the capabilities that can be called.
type CapabilityList struct {
	Capabilities []Capability `json:"capabilities"`
}

// SearchRow is one search result.
type SearchRow struct {
	ID          bailey.CapabilityID `json:"id"`
	Description string              `json:"description"`
	SideEffect  string              `json:"sideEffectClass"`
	Inputs      []string            `json:"inputs"`
	Score       float64             `json:"score"`
}

// SearchList is the answer to a [SearchRequest].
type SearchList struct {
	Capabilities []SearchRow `json:"capabilities"`
}

// SearchRequest searches for capabilities by words.
type SearchRequest struct {
	Words string `json:"words"`
	Limit int    `json:"limit,omitempty"` // maximum number of results; 0: all
}

// ToolsRequest asks for the tool definitions that an agent would get, in a format of package mcp.
type ToolsRequest struct {
	Format string `json:"format"`
}
