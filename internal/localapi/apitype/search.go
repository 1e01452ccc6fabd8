package apitype

import (
	"bailey"
)

// SearchRow is one search result.
type SearchRow struct {
	ID          bailey.CapabilityID `json:"id"`
	Description string              `json:"description"`
	SideEffect  string              `json:"sideEffectClass"`
	Inputs      []string            `json:"inputs"`
	Score       float64             `json:"score"`
}

type SearchList struct {
	Capabilities []SearchRow `json:"capabilities"`
}
