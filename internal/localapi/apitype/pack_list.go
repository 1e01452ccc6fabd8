package apitype

import (
	"bailey/internal/packstore"
)

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
