package server

import (
	"bailey/internal/approve"
	"bailey/internal/localapi/apitype"
)

// newAskedStatus returns nil if all counts are zero.
func newAskedStatus(q *approve.Queue) *apitype.AskedStatus {
	s := apitype.AskedStatus{Grants: len(q.Grants())}
	for _, o := range q.Open() {
		switch {
		case !o.Granted.IsZero():
			s.Granted++
			continue
		case s.Open == 0:
			s.Oldest = o.AskedAt.UTC()
		}
		s.Open++
	}
	if s == (apitype.AskedStatus{}) {
		return nil
	}
	return &s
}
