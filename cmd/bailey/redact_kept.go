package main

import (
	"context"

	"bailey/internal/wire"

	"bailey"
)

// keptLook is the look at one session of redact that the gateway keeps.
const keptLook = "redactions"

// keptSession is a look at the session whose id the query knows; no query is told an id.
func (s *stack) keptSession(_ context.Context, q wire.Query, _ bailey.Call) (any, error) {
	return s.kept.Find(bailey.SessionID(text(q.Args, "session")))
}
