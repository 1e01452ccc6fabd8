package server

import (
	"context"
	"slices"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// approvals is a query. It returns the open questions, grouped by call, or the question with the given ID, which may be
// over.
func (s *Server) approvals(_ context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	id := bailey.ApprovalID(text(q.Args, "id"))
	out := apitype.QuestionList{Approvals: []apitype.OpenQuestion{}}
	for _, o := range s.Queue.Open() {
		if id == "" || o.ID == id {
			out.Approvals = append(out.Approvals, seen(o))
		}
	}
	if id == "" {
		together(out.Approvals)
		return out, nil
	}
	if len(out.Approvals) == 0 {
		past, err := s.pastQuestion(id)
		if err != nil {
			return nil, err
		}
		out.Approvals = append(out.Approvals, past)
	}
	return out, nil
}

func seen(o approve.Seen) apitype.OpenQuestion {
	q := apitype.NewQuestion(o.Question)
	q.Waits = o.Waits > 0
	if q.Answers = o.Answers; !o.Granted.IsZero() {
		q.State, q.RunBy, q.Lapsed = apitype.StateGranted, o.RunBy, o.Lapsed
	}
	return q
}

// together moves each question behind the oldest one about the same call, and shortens all of them with brief. The
// digests stay.
func together(list []apitype.OpenQuestion) {
	first := map[string]int{}
	for i := range list {
		list[i].Brief()
		if _, ok := first[list[i].Alike]; !ok {
			first[list[i].Alike] = i
		}
	}
	slices.SortStableFunc(list, func(a, b apitype.OpenQuestion) int { return first[a.Alike] - first[b.Alike] })
}
