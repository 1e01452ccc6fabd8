package apitype

import (
	"bailey"
)

// SessionVerb is the query that begins a session. Any caller may use it to group its calls.
const SessionVerb = "session"

// OwnSession is a session with its bearer token, as JSON.
type OwnSession struct {
	OK      bool             `json:"ok"`
	Session bailey.SessionID `json:"session"` // as in receipts
	Bearer  string           `json:"bearer"`  // a secret: with it, any process can call in this session
}
