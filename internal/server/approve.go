package server

import (
	"context"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// approve grants a question. It requires operator rights.
func (s *Server) approve(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	return s.Queue.Answer(ctx, approve.Given{Question: bailey.ApprovalID(text(q.Args, "id")), Digest: text(q.Args, "digest"), Grant: true,
		Signature: text(q.Args, "signature"), Person: from.Principal.Person, Operator: string(q.Operator)})
}

// deny is open to every user. The denial must be recorded even if the caller disconnects first.
func (s *Server) deny(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	reason := s.redaction.Text(from.Session.ID, text(q.Args, "reason"))
	if len(reason) > 2*apitype.MaxDenial {
		reason = ""
	}
	return s.Queue.Answer(context.WithoutCancel(ctx), approve.Given{Question: bailey.ApprovalID(text(q.Args, "id")), Reason: reason, Person: from.Principal.Person})
}
