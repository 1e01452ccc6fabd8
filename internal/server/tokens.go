package server

import (
	"cmp"
	"context"
	"strings"
	"time"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// grantOf decodes the arguments of a query for a token.
func grantOf(q localapi.Query, from bailey.Call) gateway.Grant {
	g := gateway.Grant{Agent: cmp.Or(text(q.Args, "agent"), apitype.LocalAgent), TTL: time.Duration(number(q.Args, "ttl")) * time.Second, Operator: q.Operator, Person: from.Principal.Person}
	if scope := text(q.Args, "scope"); scope != "" {
		g.Scope = strings.Split(scope, ",")
	}
	return g
}

func issuedAs(bearer string, t apitype.Token, err error) (any, error) {
	return apitype.IssuedToken{OK: true, Token: t, Bearer: bearer}, err
}

func (s *Server) agentAdd(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	return issuedAs(s.agents.Add(ctx, grantOf(q, from)))
}

func (s *Server) agentRotate(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	return issuedAs(s.agents.Rotate(ctx, grantOf(q, from), time.Duration(number(q.Args, "overlap"))*time.Second))
}

func (s *Server) tokenAdd(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	return issuedAs(s.agents.Issue(ctx, grantOf(q, from)))
}

func (s *Server) agentRemove(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	name := text(q.Args, "agent")
	return map[string]any{"ok": true, "agent": name}, s.agents.Remove(ctx, name, q.Operator, from.Principal.Person)
}

func (s *Server) tokenRevoke(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	return s.agents.Revoke(ctx, text(q.Args, "id"), q.Operator, from.Principal.Person)
}

func (s *Server) listAgents(context.Context, localapi.Query, bailey.Call) (any, error) {
	return apitype.AgentList{Agents: s.agents.Names()}, nil
}

func (s *Server) listTokens(context.Context, localapi.Query, bailey.Call) (any, error) {
	all := s.agents.List()
	for i := range all {
		all[i].Hash = "" // no client needs it
	}
	return apitype.TokenList{Tokens: all}, nil
}
