package peer

import "bailey"

// ListenFor is refused: a socket does not say here whose the far end is.
func ListenFor(string, func(uid int) bool) (*Listener, error) { return nil, nameless() }

// DialUID is refused: a socket does not say here whose the far end is.
func DialUID(string, int) (*Conn, error) { return nil, nameless() }

func nameless() error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: "a socket does not say on Windows whose process is at its far end", Hint: "use Linux or macOS for this"}
}
