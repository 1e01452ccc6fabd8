package server

import (
	"encoding/json"
	"fmt"

	"bailey"
	"bailey/audit"
	"bailey/internal/approve"
	"bailey/internal/canon"
	"bailey/internal/ledger"
	"bailey/internal/localapi/apitype"
)

// trail collects the entries of one question from the ledger. It implements [ledger.Recaller].
type trail struct {
	id       bailey.ApprovalID
	question *bailey.Question
	answers  []approve.Event
	use      *approve.Use

	segment []approve.Event // answers of the current segment
	bad     error
}

// Read handles one entry. The answers follow their question, in the same segment or in a later one.
func (t *trail) Read(e audit.Entry) {
	var err error
	switch e.Kind {
	case approve.QuestionEvent:
		var q bailey.Question
		if err = json.Unmarshal(e.Data, &q); err == nil && q.ID == t.id {
			t.question = &q
		}
	case approve.AnswerEvent:
		var a approve.Event
		if err = json.Unmarshal(e.Data, &a); err == nil && a.ID == t.id {
			t.segment = append(t.segment, a)
		}
	case approve.UseEvent:
		var u approve.Use
		if err = json.Unmarshal(e.Data, &u); err == nil && u.Question == t.id {
			t.use = &u
		}
	}
	if err != nil {
		t.bad = fmt.Errorf("entry %d: %w", e.Seq, err)
	}
}

// Enough puts the answers of an older segment before those of newer segments.
func (t *trail) Enough() bool {
	t.answers, t.segment = append(t.segment, t.answers...), nil
	return t.question != nil
}

// pastQuestion reads a question that is over from the ledger.
func (s *Server) pastQuestion(id bailey.ApprovalID) (apitype.OpenQuestion, error) {
	t := &trail{id: id}
	if err := ledger.Backward(s.home.Ledger(), t); err != nil {
		return apitype.OpenQuestion{}, err
	}
	if t.question == nil {
		return apitype.OpenQuestion{}, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no question %q is open, or was asked", id), Err: t.bad,
			Hint: "bailey approvals list shows those that are open; bailey receipts list shows how calls ended"}
	}
	q, err := canon.Parse(t.question.Text)
	if err != nil {
		return apitype.OpenQuestion{}, &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("question %s was asked by another version of bailey", id), Err: err, Hint: "bailey audit verify tells whether the ledger is whole"}
	}
	q.Text, q.Digest, q.Subject, q.Alike = t.question.Text, t.question.Digest, t.question.Subject, t.question.Alike
	o := apitype.NewQuestion(q)
	o.State, o.Answers, o.Ended = apitype.StateOver, append(o.Answers, t.answers...), "it ended with its gateway"
	switch {
	case t.use != nil:
		o.Ended = fmt.Sprintf("granted, and used by %s", t.use.Receipt)
	case len(t.answers) > 0:
		o.Ended = t.answers[len(t.answers)-1].Reason
	}
	return o, nil
}
