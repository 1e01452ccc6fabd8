package approve

import (
	"maps"
	"time"

	"bailey"
)

// The ledger's kinds of entry.
const (
	QuestionEvent = "question"
	AnswerEvent   = "answer"
	UseEvent      = "use"
	GrantEvent    = "grant"
	RevokeEvent   = "grant.revoke"
)

// Event is the data of an "answer". One without a name is nobody's: it says why the question ended.
type Event struct {
	ID        bailey.ApprovalID `json:"id"`
	Receipt   bailey.ReceiptID  `json:"receipt"` // of the call that asked
	At        time.Time         `json:"at"`
	Granted   bool              `json:"granted"` // by this answer; a quorum may want more
	Settled   bool              `json:"settled"` // the question is answered
	Reason    string            `json:"reason"`
	Digest    string            `json:"digest,omitempty"` // of the question's text
	Name      string            `json:"name,omitempty"`
	Level     bailey.Level      `json:"level,omitempty"`
	Key       string            `json:"key,omitempty"` // fingerprint
	Roles     []string          `json:"roles,omitempty"`
	Signature string            `json:"signature,omitempty"` // over the question's text
	Operator  string            `json:"operator,omitempty"`  // by what right an unsigned one came
	Standing  bailey.GrantID    `json:"standing,omitempty"`  // the grant that answered, instead of a person
}

// Use is the data of a "use": a call is about to run by what was granted.
type Use struct {
	Question bailey.ApprovalID `json:"question,omitempty"`
	Standing []bailey.GrantID  `json:"standing,omitempty"`
	Receipt  bailey.ReceiptID  `json:"receipt"` // of the call that runs
	At       time.Time         `json:"at"`
}

// Standing is the data of a "grant": one that stands. All of it but who gave it is in its text.
type Standing struct {
	ID       bailey.GrantID    `json:"id"`
	Question bailey.ApprovalID `json:"question"` // at which it was given
	Text     string            `json:"text"`
	Until    time.Time         `json:"until"`
	By       Event             `json:"by"` // whose digest and signature are of the text
}

// Revoked is the data of a "grant.revoke".
type Revoked struct {
	ID       bailey.GrantID `json:"id"`
	Person   string         `json:"person,omitempty"`
	Operator string         `json:"operator,omitempty"`
}

// Kept is a question that is not over.
type Kept struct {
	Question bailey.Question `json:"question"` // its text, and what names it
	Answers  []Event         `json:"answers,omitempty"`
	Granted  time.Time       `json:"granted,omitzero"` // since when, and it was not used yet
}

// Denial is what a person said.
type Denial struct {
	Question bailey.ApprovalID `json:"question"`
	Reason   string            `json:"reason"`
	At       time.Time         `json:"at"`
}

// State is what events come to. Its zero value is that of none.
type State struct {
	Questions map[bailey.ApprovalID]Kept  `json:"questions,omitempty"`
	Denied    map[string]Denial           `json:"denied,omitempty"` // by [bailey.Question.Alike]
	Grants    map[bailey.GrantID]Standing `json:"grants,omitempty"`
}

// Asked takes in a "question".
func (s *State) Asked(q bailey.Question) {
	if s.Questions == nil {
		s.Questions = map[bailey.ApprovalID]Kept{}
	}
	s.Questions[q.ID] = Kept{Question: q}
}

// Answered takes in an "answer".
func (s *State) Answered(e Event) {
	k, ok := s.Questions[e.ID]
	switch {
	case !ok:
	case e.Granted:
		k.Answers = append(k.Answers[:len(k.Answers):len(k.Answers)], e)
		if e.Settled {
			k.Granted = e.At
		}
		s.Questions[e.ID] = k
	default:
		delete(s.Questions, e.ID)
		if e.Name != "" {
			s.denied(k.Question, e)
		}
	}
}

func (s *State) denied(q bailey.Question, e Event) {
	maps.DeleteFunc(s.Denied, func(_ string, d Denial) bool { return e.At.Sub(d.At) >= DenialTTL })
	if s.Denied == nil {
		s.Denied = map[string]Denial{}
	}
	s.Denied[q.Alike] = Denial{Question: q.ID, Reason: e.Reason, At: e.At}
}

// Used takes in a "use".
func (s *State) Used(u Use) { delete(s.Questions, u.Question) }

// Given takes in a "grant".
func (s *State) Given(g Standing) {
	maps.DeleteFunc(s.Grants, func(_ bailey.GrantID, old Standing) bool { return !old.Until.After(g.By.At) })
	if s.Grants == nil {
		s.Grants = map[bailey.GrantID]Standing{}
	}
	s.Grants[g.ID] = g
}

// Revoked takes in a "grant.revoke".
func (s *State) Revoked(r Revoked) { delete(s.Grants, r.ID) }
