package server

import (
	"context"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

func (s *Server) search(_ context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	out := apitype.SearchList{Capabilities: []apitype.SearchRow{}}
	stack := s.shelf.profiles.InForce()
	for _, m := range s.shelf.Catalog().Search(text(q.Args, "words"), number(q.Args, "limit")) {
		c := m.Capability
		if admit(stack, c) != nil {
			continue
		}
		out.Capabilities = append(out.Capabilities, apitype.SearchRow{ID: c.ID, Description: c.Description,
			SideEffect: string(c.SideEffect), Inputs: c.InputNames(), Score: m.Score})
	}
	return out, nil
}
