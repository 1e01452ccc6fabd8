package server

import (
	"context"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// stop handles `bailey kill`. It must complete even if the client disconnects.
func (s *Server) stop(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	reason := s.redaction.Text(from.Session.ID, text(q.Args, "reason"))
	if len(reason) > 2*apitype.MaxKillReason {
		reason = ""
	}
	return s.kill.Kill(context.WithoutCancel(ctx), reason, from.Principal.Person)
}

func (s *Server) resume(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	return s.kill.Resume(ctx, gateway.Resumed{Operator: q.Operator, Person: from.Principal.Person})
}

func (s *Server) killed(context.Context, localapi.Query, bailey.Call) (any, error) {
	return s.kill.State(), nil
}
