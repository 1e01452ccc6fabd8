package apitype

import (
	"bailey"
	"bailey/internal/localapi"
)

// JailRunEvent is the operator command, and the kind of the ledger entry, for a program that a person runs in a cage.
const JailRunEvent = "jail.run"

// JailRunning is the data of the ledger entry. It is written before the program starts, and contains no values of
// variables.
type JailRunning struct {
	Argv     []string `json:"argv,omitempty"` // redacted; absent if larger than [bailey.InlineCap]
	Dir      string   `json:"dir,omitempty"`  // inside the cage
	ReadOnly []string `json:"ro,omitempty"`
	Writable []string `json:"rw,omitempty"`
	Exec     []string `json:"exec,omitempty"`
	EnvNames []string `json:"envNames,omitempty"`
	TTY      bool     `json:"tty,omitempty"`
	bailey.Cage
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// JailQuery is the event as it is sent to the gateway. The gateway keeps the text of the plan. It searches argv for the
// values of Env and then discards Env.
type JailQuery struct {
	JailRunning
	Env  []string `json:"env,omitempty"`
	Plan string   `json:"plan"`
}

// LeastSecret is the minimum length, in bytes, of a value that is redacted in argv. Otherwise a variable with the value
// 1 or yes would hide these words everywhere.
const LeastSecret = 8

// CagePlan is the plan of a cage, as `jail explain` prints it.
type CagePlan struct {
	bailey.Cage
	Plan []PlanStep        `json:"plan"`           // absent if its text contains a secret
	Warm []bailey.WarmStep `json:"warm,omitempty"` // absent if no warm helper serves the plan
}

// PlanStep is one line of the plan of a cage.
type PlanStep struct {
	Layer string `json:"layer,omitempty"` // empty for scaffolding
	Text  string `json:"text"`
}
