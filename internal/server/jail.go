package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/hook"
	"bailey/internal/agenthook"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policy/review"
)

// recordJailRun is the operator command: it writes the ledger entry before the program runs.
func (s *Server) recordJailRun(ctx context.Context, asked apitype.JailQuery,
	from gateway.Caller) (none localapi.None, err error) {
	if len(asked.Argv) == 0 || asked.PlanDigest == "" {
		return none, bailey.Invalid.New("a jail run needs a command and a plan", "")
	}
	asked.Operator, asked.Person = from.Operator, from.Principal.Person
	cage := s.hidePlan(from.Session.ID, asked.Cage, asked.Plan)
	event, err := s.redactJailEvent(from.Session.ID, asked)
	if err != nil {
		return none, err
	}
	return none, s.ledger.NoteCaged(ctx, apitype.JailRunEvent, event, &cage)
}

// hidePlan returns a cage for the ledger, with its plan unless a secret of the session is in it.
func (s *Server) hidePlan(id bailey.SessionID, cage bailey.Cage, plan string) bailey.Cage {
	if cage.Plan = plan; s.redaction.Text(id, plan) != plan {
		cage.Plan = ""
	}
	return cage
}

// redactJailEvent returns the data of the ledger entry, redacted. The values of the variables are redacted in argv, but not in
// paths: a variable often holds a path, and the entry must say which paths were shown.
func (s *Server) redactJailEvent(id bailey.SessionID, asked apitype.JailQuery) (any, error) {
	var secrets []bailey.Secret
	for _, v := range asked.Env {
		name, value, _ := strings.Cut(v, "=")
		asked.EnvNames = append(asked.EnvNames, name)
		if len(value) >= apitype.LeastSecret {
			secrets = append(secrets, bailey.NewSecret(value))
		}
	}
	argv := asked.Argv
	asked.Argv = nil
	event, err := s.redactValue(id, asked.JailRunning)
	if err != nil {
		return nil, err
	}
	s.redaction.Learn(id, secrets)
	words, err := s.redactArgv(id, argv)
	if words != nil {
		event.(map[string]any)["argv"] = words
	}
	return event, err
}

// redactArgv returns arguments with their secrets redacted, or nil if they are too long for an entry of the ledger.
func (s *Server) redactArgv(id bailey.SessionID, argv []string) (words []string, err error) {
	if argv == nil {
		return nil, nil
	}
	hidden, err := s.redactValue(id, argv)
	if err != nil {
		return nil, err
	}
	if b, err := json.Marshal(hidden); err == nil && len(b) <= bailey.InlineCap {
		json.Unmarshal(b, &words)
	}
	return words, nil
}

// redactValue returns v, converted through JSON, with its secrets redacted.
func (s *Server) redactValue(id bailey.SessionID, v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var loose any
	if err := json.Unmarshal(b, &loose); err != nil {
		return nil, err
	}
	return s.redaction.Value(id, loose), nil
}

// planCage is a query: it returns the cage that would isolate a call.
func (s *Server) planCage(ctx context.Context, r localapi.CallQuery,
	from gateway.Caller) (p apitype.CagePlan, err error) {
	call := from.Call
	call.Capability, call.Input, call.Text = r.Capability, r.Input, r.Text
	cage, err := s.Gate.Cage(ctx, call)
	if err != nil {
		return p, err
	}
	p = apitype.CagePlan{Cage: cage, Warm: cage.Warm}
	for i, line := range strings.Split(strings.TrimSuffix(cage.Plan, "\n"), "\n") {
		if line != "" && i < len(cage.PlanLayers) {
			p.Plan = append(p.Plan, apitype.PlanStep{Layer: cage.PlanLayers[i], Text: line})
		}
	}
	return p, nil
}

// unaskedRules finds them among the rules in force and the applied hooks.
func (s *Server) unaskedRules() (u apitype.WrapUnasked) {
	u.Rules = review.OwnRules(s.Rules.Engine(), agenthook.Own()...)
	for _, h := range s.hooks.Config().Hooks {
		asked := slices.ContainsFunc(agenthook.Own(), func(id bailey.CapabilityID) bool {
			return h.Matches(hook.PreToolUse{ToolName: string(id)}) || h.Matches(hook.PostToolUse{ToolName: string(id)})
		})
		if asked {
			u.Hooks = append(u.Hooks, strings.Join(h.Argv, " "))
		}
	}
	return u
}

// startWrap is the operator command: the policy decides, and the ledger entry is written before the agent runs.
func (s *Server) startWrap(ctx context.Context, w apitype.WrapQuery,
	from gateway.Caller) (begun apitype.WrapBegun, err error) {
	if w.ID == "" || w.Agent == "" || w.Project == "" || w.PlanDigest == "" {
		return begun, bailey.Invalid.New("a wrap needs an agent, a project and a plan", "")
	}
	w.At, w.Operator, w.Person = time.Now().UTC(), from.Operator, from.Principal.Person
	d := s.kill.Before(s.Rules).Decide(w.Request(from.Call))
	w.Rules, w.Policy = d.Rules, d.Policy
	if d.Effect != bailey.Allow {
		return begun, wrapDenied(d)
	}
	if err := s.workspaces.Fit(w.Project); err != nil {
		return begun, err
	}
	bearer, id, err := s.sessions.IssueWall(ctx, w.Agent, w.Project)
	if err != nil {
		return begun, err
	}
	w.Session = id
	cage := s.hidePlan(id, w.Cage, w.Plan)
	if w.Argv, err = s.redactArgv(id, w.Argv); err != nil {
		return begun, err
	}
	if err := s.scribe.noteCaged(ctx, apitype.WrapStart, w.WrapStarting, &cage); err != nil {
		return begun, err
	}
	return apitype.WrapBegun{Session: id, Bearer: bearer, Unasked: s.unaskedRules()}, nil
}

// wrapDenied returns an error that names the denying rule. A rule that asks denies too: the operator who would approve
// can change the rule instead.
func wrapDenied(d bailey.Decision) error {
	hint := "write a permit for Action::\"agent.wrap\", then run bailey policy apply; rule wrap of the starter policy allows 4096 MiB and 1024 tasks in a full jail (bailey policy show)"
	why := d.Reason
	for _, r := range slices.Concat(d.Rules, d.Asks) {
		why = fmt.Sprintf("%s (rule %s, %s)", d.Reason, r.ID, r.Source)
		hint = "leave out what the rule does not allow, or change the rule and run bailey policy apply"
		break
	}
	return bailey.Denied.New("policy does not allow wrapping this agent in this way: "+why, hint)
}

func (s *Server) reportRefusals(ctx context.Context, w apitype.WrapRefusals,
	from gateway.Caller) (localapi.None, error) {
	w.At = time.Now().UTC()
	w.Bound()
	for i := range w.Lines {
		l := &w.Lines[i]
		l.Target, l.Reason, l.Hint = s.redaction.Text(from.Session.ID, l.Target), s.redaction.Text(from.Session.ID,
			l.Reason), s.redaction.Text(from.Session.ID, l.Hint)
	}
	w.Bound()
	return localapi.None{}, s.scribe.recordEvent(ctx, apitype.WrapRefused, w)
}

func (s *Server) endWrap(ctx context.Context, w apitype.WrapEnding, _ gateway.Caller) (localapi.None, error) {
	w.At = time.Now().UTC()
	w.Bound()
	return localapi.None{}, s.scribe.recordEvent(ctx, apitype.WrapEnd, w)
}

// listWraps is the query of wrap --log.
func (s *Server) listWraps(context.Context, localapi.None, gateway.Caller) (apitype.WrapsKnown, error) {
	return s.wrapsNow(), nil
}

func (s *Server) wrapsNow() apitype.WrapsKnown {
	s.scribe.mu.Lock()
	defer s.scribe.mu.Unlock()
	return s.scribe.lore.Wraps
}
