package apitype

import (
	"bailey"
)

// Pin records a program as a call ran it. It is written at the first use, and for a program that only root can write
// also after each change.
type Pin struct {
	bailey.Program
	Command string `json:"command,omitempty"` // command name in the manifest, only for the tool itself
}
