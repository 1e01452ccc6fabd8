package apitype

import (
	"bailey/internal/tui"
)

// NowQuery is the query that the screen repeats. Its answer contains only state that can change at any time and is cheap
// to determine.
const NowQuery = "now"

// Present is the current state of the gateway.
type Present struct {
	QuestionList
	Calls  []LiveCall `json:"calls"`
	Wraps  WrapsKnown `json:"wraps,omitzero"`
	Killed *Killed    `json:"killed,omitempty"`
}

// Listed returns the question as a list shows it.
func (o OpenQuestion) Listed() tui.Question {
	q := tui.Question{Question: o.Question, Agent: o.Agent, Given: o.Inputs, Waits: o.Waits, RunBy: o.RunBy}
	q.Rules = o.Rules
	for _, e := range o.Answers {
		q.Answers = append(q.Answers, tui.Answered{Name: e.Name, Level: e.Level})
	}
	return q
}

// Bound returns the question as its text describes it, because an answer binds only the text and not the fields beside
// it.
func (o OpenQuestion) Bound() (tui.Question, error) {
	q, err := o.Read(string(o.ID))
	if err != nil {
		return tui.Question{}, err
	}
	return q.Listed(), nil
}
