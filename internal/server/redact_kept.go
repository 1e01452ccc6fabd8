package server

import (
	"context"

	"bailey"
	"bailey/internal/localapi"
)

// keptSession returns the session with the id in the query. No query lists ids, so the caller must know the id.
func (s *Server) keptSession(_ context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	return s.kept.Find(bailey.SessionID(text(q.Args, "session")))
}
