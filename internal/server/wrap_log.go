package server

import (
	"context"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// wraps is the query of wrap --log.
func (s *Server) wraps(context.Context, localapi.Query, bailey.Call) (any, error) {
	return s.wrapsNow(), nil
}

func (s *Server) wrapsNow() apitype.WrapsKnown {
	s.scribe.mu.Lock()
	defer s.scribe.mu.Unlock()
	return s.scribe.lore.Wraps
}
