package server

import (
	"context"
	"encoding/json"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// packOnboard is the operator command: it writes the ledger entry before the tool runs.
func (s *Server) packOnboard(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	var asked apitype.OnboardQuery
	b, err := json.Marshal(q.Args["onboard"])
	if err == nil {
		err = json.Unmarshal(b, &asked)
	}
	if err != nil || asked.Tool == "" || asked.PlanDigest == "" {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "an onboarding names a tool and a plan", Err: err}
	}
	asked.Operator, asked.Person = q.Operator, from.Principal.Person
	cage := asked.Cage
	if cage.Plan = asked.Plan; s.redaction.Value(from.Session.ID, cage.Plan) != any(cage.Plan) {
		cage.Plan = ""
	}
	event, err := s.hidden(from.Session.ID, asked.OnboardEvent)
	if err != nil {
		return nil, err
	}
	return struct{}{}, s.ledger.NoteCaged(ctx, apitype.PackOnboardEvent, event, &cage)
}
