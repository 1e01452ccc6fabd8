package server

import (
	"context"
	"time"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/canon"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// draft is a query. It returns the text that would be signed.
func (s *Server) draft(_ context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	text, err := s.Queue.Draft(bailey.ApprovalID(text(q.Args, "id")), time.Duration(number(q.Args, "seconds"))*time.Second)
	return map[string]string{"text": text}, err
}

// stand gives a standing grant. It requires operator rights.
func (s *Server) stand(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	g, err := s.Queue.Stand(ctx, bailey.GrantID(text(q.Args, "id")), approve.Given{Digest: text(q.Args, "digest"), Grant: true,
		Signature: text(q.Args, "signature"), Person: from.Principal.Person, Operator: string(q.Operator)})
	return newGrant(g), err
}

func (s *Server) revoke(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	r := approve.Revoked{ID: bailey.GrantID(text(q.Args, "id")), Person: from.Principal.Person, Operator: string(q.Operator)}
	return r, s.Queue.Revoke(ctx, r)
}

// grants is a query. It returns the standing grants.
func (s *Server) grants(context.Context, localapi.Query, bailey.Call) (any, error) {
	out := apitype.GrantList{Grants: []apitype.StandingGrant{}}
	for _, g := range s.Queue.Grants() {
		out.Grants = append(out.Grants, newGrant(g))
	}
	return out, nil
}

func newGrant(s approve.Standing) apitype.StandingGrant {
	g, err := canon.ParseGrant(s.Text)
	if err != nil { // such a grant would not be valid
		return apitype.StandingGrant{ID: s.ID, Text: s.Text}
	}
	return apitype.StandingGrant{ID: g.ID, Capability: g.Capability, Agent: g.Principal.Agent, Person: g.Principal.Person, Rules: g.Rules, Given: g.Given, Until: g.Until,
		By: s.By.Name, Level: s.By.Level, Question: s.Question, Text: s.Text}
}
