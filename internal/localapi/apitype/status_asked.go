package apitype

import (
	"fmt"
	"strings"
	"time"
)

// AskedStatus counts the pending questions, and the approvals and standing grants that people gave.
type AskedStatus struct {
	Open    int       `json:"open"`
	Oldest  time.Time `json:"oldest,omitzero"` // when the oldest pending question was asked
	Granted int       `json:"granted"`         // not used yet
	Grants  int       `json:"grants"`          // standing grants
}

func (s *AskedStatus) summary() string {
	var words []string
	if s.Open > 0 {
		words = append(words, fmt.Sprintf("%s for a person, the oldest since %s: bailey approvals list",
			map[bool]string{true: "1 question waits", false: fmt.Sprintf("%d questions wait", s.Open)}[s.Open == 1], s.Oldest.Local().Format(time.TimeOnly)))
	}
	if s.Granted > 0 {
		words = append(words, fmt.Sprintf("%d granted and not used", s.Granted))
	}
	if s.Grants > 0 {
		words = append(words, Counts(s.Grants, "grant")+" standing: bailey grants list")
	}
	return strings.Join(words, "; ")
}
