package apitype

import (
	"encoding/json"

	"bailey"
)

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
	Preview       [][]string          `json:"preview,omitempty"` // command lines
	Covers        bool                `json:"previewCoversContents,omitempty"`
	Egress        []string            `json:"egress,omitempty"` // as in the manifest
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
