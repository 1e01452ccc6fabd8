package peer

import "bailey"

// errNameless is why nobody but our own user can be spoken to here.
var errNameless error = &bailey.Error{Kind: bailey.Unavailable, Message: "a socket does not say on Windows whose process is at its far end", Hint: "use Linux or macOS for this"}

// ListenFor is refused: a socket does not say here whose the far end is.
func ListenFor(string, func(uid int) bool) (*Listener, error) { return nil, errNameless }

// DialUID is refused: a socket does not say here whose the far end is.
func DialUID(string, int) (*Conn, error) { return nil, errNameless }
