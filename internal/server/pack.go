package server

import (
	"context"
	"encoding/json"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
)

// changes is a query: it returns the changed programs of a capability that need an approval.
func (s *Server) changes(ctx context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	job, pins, err := s.pinned(q)
	if err != nil {
		return nil, err
	}
	programs, err := pins.Changes(ctx, job)
	return apitype.Changed{OK: err == nil, Capability: job.Capability, Programs: programs}, err
}

// pinned returns a capability's job, without inputs because its programs do not depend on them, and the pins that check
// it.
func (s *Server) pinned(q localapi.Query) (bailey.Job, *gateway.Pins, error) {
	m, err := s.shelf.Catalog().Lookup(bailey.CapabilityID(text(q.Args, "id")))
	if err != nil {
		return bailey.Job{}, nil, err
	}
	pins := s.pins
	if m.Uncaged() {
		pins = s.open
	}
	return m.Job(nil, nil), pins, nil
}

// commandHandlers returns the operator commands by verb.
func (s *Server) commandHandlers() map[string]gateway.Verb {
	acts := s.desk.acts()
	acts[apitype.JailRunEvent] = s.jailRun
	acts[apitype.WrapStart], acts[apitype.WrapRefused], acts[apitype.WrapEnd] = s.wrapStart, s.wrapRefused, s.wrapEnd
	acts[apitype.RepinCommand] = s.repin
	acts[apitype.ShimInstallEvent], acts[apitype.ShimUninstallEvent] = s.shimmed, s.shimmed
	acts[apitype.PackOnboardEvent] = s.packOnboard
	acts[apitype.ProfileEvent] = s.applyProfiles
	acts[apitype.ForgetCommand] = s.forget
	acts[apitype.RotateCommand] = s.rotate
	acts[apitype.PolicyEvent] = s.Rules.apply
	acts[apitype.ResumeVerb] = s.resume
	acts[apitype.AgentAddEvent], acts[apitype.AgentRotateCommand], acts[apitype.AgentRemoveEvent] = s.agentAdd, s.agentRotate, s.agentRemove
	acts[apitype.TokenAddEvent], acts[apitype.TokenRevokeEvent] = s.tokenAdd, s.tokenRevoke
	acts[apitype.ApproveVerb] = s.approve
	acts[apitype.NotifyTestVerb], acts[apitype.NotifyKeyVerb] = s.notifyTest, s.notifyKey
	acts[apitype.ApprovalsServeEvent] = s.serveNoted
	acts[apitype.StandVerb] = s.stand
	acts[apitype.RevokeVerb] = s.revoke
	acts[apitype.HooksEvent], acts[apitype.HooksRunVerb], acts[apitype.HooksNoteVerb] = s.applyHooks, s.runHooks, s.noteHooks
	acts[packstore.PackTrustEvent], acts[packstore.PackUntrustEvent] = s.packed.trust, s.packed.untrust
	acts[packstore.PackInstallEvent], acts[packstore.PackUninstallEvent], acts[packstore.PackPublishEvent] = s.packed.install, s.packed.uninstall, s.packed.published
	return acts
}

func (s *Server) repin(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	job, pins, err := s.pinned(q)
	if err != nil {
		return nil, err
	}
	r := gateway.Repin{Capability: job.Capability, Operator: q.Operator, Person: from.Principal.Person}
	if err := json.Unmarshal([]byte(text(q.Args, "shown")), &r.Programs); err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "a repin names the programs that were shown", Err: err}
	}
	if err := pins.Repin(ctx, job, r); err != nil {
		return nil, err
	}
	return apitype.Changed{OK: true, Changed: true, Capability: job.Capability, Programs: r.Programs}, nil
}
