package main

import (
	"fmt"
	"strings"
	"time"

	"bailey/internal/approve"
)

// askedStatus counts the pending questions, and the approvals and standing grants that people gave.
type askedStatus struct {
	Open    int       `json:"open"`
	Oldest  time.Time `json:"oldest,omitzero"` // when the oldest pending question was asked
	Granted int       `json:"granted"`         // not used yet
	Grants  int       `json:"grants"`          // standing grants
}

// newAskedStatus returns nil if all counts are zero.
func newAskedStatus(q *approve.Queue) *askedStatus {
	s := askedStatus{Grants: len(q.Grants())}
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
	if s == (askedStatus{}) {
		return nil
	}
	return &s
}

func (s *askedStatus) words() string {
	var words []string
	if s.Open > 0 {
		words = append(words, fmt.Sprintf("%s for a person, the oldest since %s: bailey approvals list",
			map[bool]string{true: "1 question waits", false: fmt.Sprintf("%d questions wait", s.Open)}[s.Open == 1], s.Oldest.Local().Format(time.TimeOnly)))
	}
	if s.Granted > 0 {
		words = append(words, fmt.Sprintf("%d granted and not used", s.Granted))
	}
	if s.Grants > 0 {
		words = append(words, counts(s.Grants, "grant")+" standing: bailey grants list")
	}
	return strings.Join(words, "; ")
}
