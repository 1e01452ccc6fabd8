package peer

import "bailey"

// errNoPeerUID says why no other user can be a peer: on Windows a socket does not report its peer's uid.
var errNoPeerUID error = &bailey.Error{Kind: bailey.Unavailable,
	Message: "a socket does not say on Windows whose process is at its far end", Hint: "use Linux or macOS for this"}

// ListenFor returns errNameless.
func ListenFor(string, func(uid int) bool) (*Listener, error) { return nil, errNoPeerUID }

// DialUID returns errNameless.
func DialUID(string, int) (*Conn, error) { return nil, errNoPeerUID }
