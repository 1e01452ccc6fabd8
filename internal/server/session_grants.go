package server

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"bailey"
	"bailey/internal/agenthook"
	"bailey/internal/approve"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
)

// endAgentSession is open to every caller: it only takes rights away.
func (s *Server) endAgentSession(ctx context.Context, r apitype.AgentSession, _ gateway.Caller) (none localapi.None,
	err error) {
	if r.Session == "" {
		return none, bailey.Invalid.New("the session has no name", "")
	}
	return none, s.hook.Grants.EndSession(ctx, r.Session, "the session of the agent ended")
}

func (s *Server) showAsked(_ context.Context, r apitype.ID, _ gateway.Caller) (agenthook.Asked, error) {
	return s.hook.Grants.Find(bailey.ApprovalID(r.ID))
}

// grantSession answers a question of the hook for the session of its agent.
func (s *Server) grantSession(ctx context.Context, r apitype.ID, from gateway.Caller) (out apitype.StandingGrant,
	err error) {
	if len(s.settings.Applied().Approvers) > 0 {
		return out, bailey.Denied.New(settings.FileName+" names approvers, who sign each answer; "+
			"an answer for a session has no text to sign",
			"answer at the agent, or write a rule: bailey approve --always "+r.ID)
	}
	g, err := s.hook.Grants.Give(ctx, bailey.ApprovalID(r.ID), s.Rules.Engine().Digest(),
		from.Principal.Person, string(from.Operator))
	if err != nil {
		return out, err
	}
	return newSessionGrants(g)[0], nil
}

// newSessionGrants returns a grant for a session as a list shows it: one row for each call.
func newSessionGrants(g agenthook.Grant) (rows []apitype.StandingGrant) {
	for _, c := range g.Asked.Calls {
		rows = append(rows, apitype.StandingGrant{ID: g.ID, Capability: c.Capability, Agent: g.Asked.Principal.Agent,
			Person: g.Asked.Principal.Person, Session: bailey.SessionID(g.Asked.Session),
			Covers: strings.TrimSpace(fmt.Sprintf("%s %s", c.Input, c.Value)), Rules: c.Rules, Given: g.At, Until: g.Until,
			By: cmp.Or(g.Person, "an operator"), Level: bailey.Local, Question: g.Asked.ID})
	}
	return rows
}

// endEveryGrant ends all grants that last, because of reason.
func (s *Server) endEveryGrant(reason string) {
	s.Queue.ForgetAnswers()
	s.Queue.EndGrants(reason, func(bailey.Grant) bool { return true })
	if err := s.hook.Grants.EndSession(context.Background(), "", reason); err != nil {
		s.Log.Error("the end of grants is not in the ledger", "err", err)
	}
}

// applyPolicy applies a policy. The grants of sessions were given under the old one, so they end.
func (s *Server) applyPolicy(ctx context.Context, r apitype.PolicyRequest,
	from gateway.Caller) (apitype.Proposed, error) {
	before := s.Rules.Engine().Digest()
	p, err := s.Rules.applyPolicy(ctx, r, from)
	s.endPolicyGrants(ctx, before)
	return p, err
}

// endPolicyGrants ends what was granted under another policy, if the one in force is not the one before.
func (s *Server) endPolicyGrants(ctx context.Context, before string) {
	if s.Rules.Engine().Digest() == before {
		return
	}
	const reason = "the policy was changed"
	s.reportPolicy()
	s.Queue.ForgetAnswers()
	s.Queue.EndGrants(reason, approve.ForSession(""))
	if err := s.hook.Grants.EndSession(context.WithoutCancel(ctx), "", reason); err != nil {
		s.Log.Error("the end of grants is not in the ledger", "err", err)
	}
}
