package server

import (
	"context"
	"errors"
	"strings"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// cage is a query: it returns the cage that would isolate a call.
func (s *Server) cage(ctx context.Context, q localapi.Query, call bailey.Call) (any, error) {
	if q.Call == nil {
		return nil, errors.New("a cage query without a call")
	}
	call.Capability, call.Input, call.Text = q.Call.Capability, q.Call.Input, q.Call.Text
	cage, err := s.Gate.Cage(ctx, call)
	if err != nil {
		return nil, err
	}
	p := apitype.CagePlan{Cage: cage, Warm: cage.Warm}
	for i, line := range strings.Split(strings.TrimSuffix(cage.Plan, "\n"), "\n") {
		if line != "" && i < len(cage.PlanLayers) {
			p.Plan = append(p.Plan, apitype.PlanStep{Layer: cage.PlanLayers[i], Text: line})
		}
	}
	return p, nil
}
