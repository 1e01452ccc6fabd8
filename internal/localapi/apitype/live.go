package apitype

import (
	"time"

	"bailey"
)

// LiveCall is a call whose intent is durable and whose outcome is not.
type LiveCall struct {
	Receipt    bailey.ReceiptID    `json:"receipt"`
	Capability bailey.CapabilityID `json:"capability"`
	Agent      string              `json:"agent"`
	Session    bailey.SessionID    `json:"session"`
	Door       string              `json:"door"`
	Since      time.Time           `json:"since"`
}

// LiveSession is a session with a persistent connection. If it has several, the fields describe the last one.
type LiveSession struct {
	ID     bailey.SessionID `json:"id"`
	Door   string           `json:"door"`
	Agent  string           `json:"agent"`
	Dir    string           `json:"dir"`
	Client string           `json:"client,omitempty"` // name that the client gives itself; known after its first call
	Since  time.Time        `json:"since"`
}
