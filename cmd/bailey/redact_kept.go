package main

import (
	"context"

	"bailey/internal/wire"

	"bailey"
)

// keptLook is the query for one redaction session that the gateway keeps.
const keptLook = "redactions"

// keptSession returns the session with the id in the query. No query lists ids, so the caller must know the id.
func (s *stack) keptSession(_ context.Context, q wire.Query, _ bailey.Call) (any, error) {
	return s.kept.Find(bailey.SessionID(text(q.Args, "session")))
}
