package apitype

import (
	"bailey/internal/localapi"
)

// Added says how much of a file Bailey added. Undo removes exactly that much.
type Added string

const (
	AddedDir     Added = "directory" // the directory of the file did not exist
	AddedFile    Added = "file"      // the file did not exist
	AddedServers Added = "servers"   // the file had no list of servers
	AddedServer  Added = "server"    // only the entry
	AddedHooks   Added = "hooks"     // the file had no hooks
	AddedEvent   Added = "event"     // the file had no hook for the event
	AddedHook    Added = "hook"      // only the entry
)

// InFile returns the part of a that is inside the file.
func (a Added) InFile() Added {
	if a == AddedDir {
		return AddedFile
	}
	return a
}

// The ledger events for the changes that init makes in the files of a client.
const (
	ConfigureEvent = "client.configure"
	UndoEvent      = "client.undo"
)

// SettingsQuery asks for the settings.
type SettingsQuery struct {
	Dir string `json:"dir,omitempty"` // the answer tells whether it is inside a workspace
}

// SettingsRequest asks to apply settings.
type SettingsRequest struct {
	Base string  `json:"base"`           // digest of the file that was shown; "" without a file
	Text *string `json:"text,omitempty"` // new content of the file; nil: the file as it is
}

// ClientFile names a file of a client.
type ClientFile struct {
	File string `json:"file"`
}

// Configuration is the data of both events, and the request to record one: a file of a client, and how much of it
// Bailey added. It must be recorded before the file changes. The gateway sets Operator and Person.
type Configuration struct {
	Client   string            `json:"client"`
	Scope    string            `json:"scope"`
	File     string            `json:"file"`
	Command  string            `json:"command"`
	Added    Added             `json:"added"`
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}
