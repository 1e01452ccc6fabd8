package main

import (
	"fmt"
	"strings"
	"time"

	"bailey/internal/approve"
)

// askedStatus is what waits for a person, and what people granted.
type askedStatus struct {
	Open    int       `json:"open"`
	Oldest  time.Time `json:"oldest,omitzero"` // when the oldest of them was asked
	Granted int       `json:"granted"`         // and not used yet
	Grants  int       `json:"grants"`          // that stand
}

// newAskedStatus is nil where nobody is asked and nothing was granted.
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
