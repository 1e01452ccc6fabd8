package server

import (
	"context"
	"encoding/json"
	"strings"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// recordJailRun is the operator command: it writes the ledger entry before the program runs.
func (s *Server) recordJailRun(ctx context.Context, asked apitype.JailQuery,
	from gateway.Caller) (none localapi.None, err error) {
	if len(asked.Argv) == 0 || asked.PlanDigest == "" {
		return none, bailey.Invalid.New("a jail run names a command and a plan", "")
	}
	asked.Operator, asked.Person = from.Operator, from.Principal.Person
	cage := asked.Cage
	if cage.Plan = asked.Plan; s.redaction.Value(from.Session.ID, cage.Plan) != any(cage.Plan) {
		cage.Plan = ""
	}
	event, err := s.redactJailEvent(from.Session.ID, asked)
	if err != nil {
		return none, err
	}
	return none, s.ledger.NoteCaged(ctx, apitype.JailRunEvent, event, &cage)
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
	words, err := s.redactValue(id, argv)
	if err != nil {
		return nil, err
	}
	if b, err := json.Marshal(words); err == nil && len(b) <= bailey.InlineCap {
		event.(map[string]any)["argv"] = words
	}
	return event, nil
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
