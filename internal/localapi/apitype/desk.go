package apitype

import (
	"bailey/internal/localapi"
)

// The ledger events for the changes that init makes in the files of a client.
const (
	ConfigureEvent = "client.configure"
	UndoEvent      = "client.undo"
)

// Configuration is the data of both events: a file of a client, and how much of it Bailey added. It must be recorded
// before the file changes.
type Configuration struct {
	Client   string            `json:"client"`
	Scope    string            `json:"scope"`
	File     string            `json:"file"`
	Command  string            `json:"command"`
	Added    Added             `json:"added"`
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}
