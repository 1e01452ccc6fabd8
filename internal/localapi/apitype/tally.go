package apitype

import (
	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/redact"
)

// Redacted is the result of redacting or restoring. It contains no text.
type Redacted struct {
	Session    bailey.SessionID  `json:"session,omitempty"` // if it was kept
	Hidden     int               `json:"hidden"`            // findings
	Lost       int               `json:"lost,omitempty"`    // findings that cannot be restored because the map was full
	Escaped    int               `json:"escaped,omitempty"` // literal tokens
	Categories []Hidden          `json:"categories"`        // most findings first, never null
	Restored   int               `json:"restored,omitempty"`
	Left       int               `json:"left,omitempty"`   // tokens that were not restored
	Missed     []redact.Miss     `json:"missed,omitempty"` // the first of Left
	Fault      *localapi.Failure `json:"fault,omitempty"`  // of the line that ended the stream
}

// Hidden is the result for one category.
type Hidden struct {
	Category redact.Category `json:"category"`
	Finds    int             `json:"finds"`
	Distinct int             `json:"distinct"` // different texts; all lost ones count as one
	Line     int             `json:"line"`     // input line of the first finding, counted from one
}
