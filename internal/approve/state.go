package approve

import (
	"maps"
	"time"

	"bailey"
)

// The kinds of ledger entries.
const (
	QuestionEvent = "question"
	AnswerEvent   = "answer"
	UseEvent      = "use"
	GrantEvent    = "grant"
	RevokeEvent   = "grant.revoke"
)

// Event is the data of an "answer". An event without a name is not from a person; it says why the question ended.
type Event struct {
	ID        bailey.ApprovalID `json:"id"`
	Receipt   bailey.ReceiptID  `json:"receipt"` // of the call that asked
	At        time.Time         `json:"at"`
	Granted   bool              `json:"granted"` // by this answer; a quorum may require more
	Settled   bool              `json:"settled"` // the question is answered
	Reason    string            `json:"reason"`
	Digest    string            `json:"digest,omitempty"` // of the question's text
	Name      string            `json:"name,omitempty"`
	Level     bailey.Level      `json:"level,omitempty"`
	Key       string            `json:"key,omitempty"` // fingerprint
	Roles     []string          `json:"roles,omitempty"`
	Signature string            `json:"signature,omitempty"` // over the question's text
	Counter   uint32            `json:"counter,omitempty"`   // of the passkey that signed
	Operator  string            `json:"operator,omitempty"`  // how operator rights were established for an unsigned one
	Standing  bailey.GrantID    `json:"standing,omitempty"`  // grant that answered, instead of a person
}

// Use is the data of a "use": a granted call is about to run.
type Use struct {
	Question bailey.ApprovalID `json:"question,omitempty"`
	Standing []bailey.GrantID  `json:"standing,omitempty"`
	Receipt  bailey.ReceiptID  `json:"receipt"` // of the call that runs
	At       time.Time         `json:"at"`
}

// Standing is the data of a "grant": a standing grant. Its text contains everything except its author.
type Standing struct {
	ID       bailey.GrantID    `json:"id"`
	Question bailey.ApprovalID `json:"question"` // for which it was given
	Text     string            `json:"text"`
	Until    time.Time         `json:"until"`
	By       Event             `json:"by"` // its digest and signature are those of the text
}

// Revoked is the data of a "grant.revoke".
type Revoked struct {
	ID       bailey.GrantID `json:"id"`
	Person   string         `json:"person,omitempty"`
	Operator string         `json:"operator,omitempty"`
	Reason   string         `json:"reason,omitempty"` // why it ended, if no person revoked it
}

// Kept is a question that has not ended.
type Kept struct {
	Question bailey.Question `json:"question"` // only its text and identifiers
	Answers  []Event         `json:"answers,omitempty"`
	Granted  time.Time       `json:"granted,omitzero"` // when it was granted; it is not used yet
}

// Denial is a person's denial.
type Denial struct {
	Question bailey.ApprovalID `json:"question"`
	Reason   string            `json:"reason"`
	At       time.Time         `json:"at"`
}

// State is the result of events. The zero value is the state before the first event.
type State struct {
	Questions map[bailey.ApprovalID]Kept  `json:"questions,omitempty"`
	Denied    map[string]Denial           `json:"denied,omitempty"` // by [bailey.Question.Alike]
	Grants    map[bailey.GrantID]Standing `json:"grants,omitempty"`
	Counters  map[string]uint32           `json:"counters,omitempty"` // of passkeys, by fingerprint
}

// keepCounter keeps the counter of a passkey's answer.
func (s *State) keepCounter(e Event) {
	if e.Counter == 0 {
		return
	}
	if s.Counters == nil {
		s.Counters = map[string]uint32{}
	}
	s.Counters[e.Key] = max(s.Counters[e.Key], e.Counter)
}

// Asked applies a "question".
func (s *State) Asked(q bailey.Question) {
	if s.Questions == nil {
		s.Questions = map[bailey.ApprovalID]Kept{}
	}
	s.Questions[q.ID] = Kept{Question: q}
}

// Answered applies an "answer".
func (s *State) Answered(e Event) {
	s.keepCounter(e)
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
			s.addDenial(k.Question, e)
		}
	}
}

func (s *State) addDenial(q bailey.Question, e Event) {
	maps.DeleteFunc(s.Denied, func(_ string, d Denial) bool { return e.At.Sub(d.At) >= DenialTTL })
	if s.Denied == nil {
		s.Denied = map[string]Denial{}
	}
	s.Denied[q.Alike] = Denial{Question: q.ID, Reason: e.Reason, At: e.At}
}

// Used applies a "use".
func (s *State) Used(u Use) { delete(s.Questions, u.Question) }

// Given applies a "grant".
func (s *State) Given(g Standing) {
	maps.DeleteFunc(s.Grants, func(_ bailey.GrantID, old Standing) bool { return !old.Until.After(g.By.At) })
	if s.Grants == nil {
		s.Grants = map[bailey.GrantID]Standing{}
	}
	s.Grants[g.ID] = g
	s.keepCounter(g.By)
}

// Revoked applies a "grant.revoke".
func (s *State) Revoked(r Revoked) { delete(s.Grants, r.ID) }
