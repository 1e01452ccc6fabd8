package apitype

import (
	"bailey"
)

// CagePlan is the plan of a cage, as `jail explain` prints it.
type CagePlan struct {
	bailey.Cage
	Plan []PlanStep        `json:"plan"`           // absent if its text contains a secret
	Warm []bailey.WarmStep `json:"warm,omitempty"` // absent if no warm helper serves the plan
}

type PlanStep struct {
	Layer string `json:"layer,omitempty"` // empty for scaffolding
	Text  string `json:"text"`
}
