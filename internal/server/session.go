package server

import (
	"context"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// session is a query that any caller may send.
func (s *Server) session(ctx context.Context, _ localapi.Query, from bailey.Call) (any, error) {
	bearer, id, err := s.sessions.Issue(ctx, from.Principal)
	if err != nil {
		return nil, err
	}
	return apitype.OwnSession{OK: true, Session: id, Bearer: bearer}, nil
}
