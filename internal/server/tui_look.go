package server

import (
	"context"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

func (s *Server) present(ctx context.Context, _ localapi.Query, from bailey.Call) (any, error) {
	list, err := s.approvals(ctx, localapi.Query{}, from)
	if err != nil {
		return nil, err
	}
	out := apitype.Present{}
	out.QuestionList, _ = list.(apitype.QuestionList)
	out.Calls, _ = s.live.Now()
	if k := s.kill.State(); k.On() {
		out.Killed = &k
	}
	out.Wraps = s.wrapsNow()
	out.Wraps.Refused = apitype.Last(out.Wraps.Refused, shownRefusals)
	return out, nil
}

// shownRefusals is the maximum number of refusals of agents in the agent jail that a screen shows. wrap --log shows
// all.
const shownRefusals = 32
