package packstore

import (
	"slices"
	"strings"

	"bailey/pack"
)

// Sources of a pack.
const (
	BuiltInPack = "built-in"
	SignedPack  = "installed"
	DevPack     = "dev"
	BundledPack = "bundle" // a bundle file that is not installed
)

// Row is a pack in a list.
type Row struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	Description  string `json:"description"`
	Source       string `json:"source"`
	Digest       string `json:"digest,omitempty"` // of the bundle
	Key          string `json:"key,omitempty"`
	File         string `json:"file,omitempty"` // of a bundle that is not installed
	Capabilities int    `json:"capabilities"`
	Finding      string `json:"finding,omitempty"` // why it is not loaded

	words string // its searchable text, in lower case
}

func NewRow(p *pack.Pack, source string, in Installed) Row {
	words := []string{p.Name, p.Description}
	for _, c := range p.Capabilities {
		words = append(words, string(c.ID), c.Description)
	}
	return Row{Name: p.Name, Version: p.Version, Description: p.Description, Source: source, Digest: in.Digest, Key: in.Key,
		Capabilities: len(p.Capabilities), words: strings.ToLower(strings.Join(words, "\n"))}
}

func (p Row) Says(words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p.words, strings.ToLower(w)) })
}
