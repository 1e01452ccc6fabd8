package approve

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"bailey"
)

// Given is an answer as it comes.
type Given struct {
	Question  bailey.ApprovalID
	Digest    string // of the text that was answered
	Grant     bool
	Reason    string // of a denial
	Signature string // SSHSIG over the text, armoured; "" for none
	Person    string // who came, as the door knows it
	Operator  string // by what right
}

// Approver is whose answer it is.
type Approver struct {
	Name  string
	Level bailey.Level
	Key   string // fingerprint
	Roles []string
}

// Tally is how a question stands after an answer.
type Tally struct {
	Settled bool     `json:"settled"`
	Granted bool     `json:"granted"`
	Names   []string `json:"names"` // whose grants count
	Count   int      `json:"count"` // how many it takes
}

// Answer takes one answer, durably. A denial is anybody's and ends the question. A grant has to be proven, by a holder of
// every role that the asking rules want, once for each name; the question is granted when as many as the rules want have.
func (u *Queue) Answer(ctx context.Context, g Given) (Tally, error) {
	e, err := u.find(g)
	if err != nil {
		return Tally{}, err
	}
	e.turn.Lock()
	defer e.turn.Unlock()
	if !g.Grant {
		return u.deny(e, g)
	}
	if e.q.Patience <= 0 {
		return Tally{}, &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("nobody waits for the answer to %s: its call has ended", g.Question),
			Hint: "in this version a grant reaches only a call that waits: bailey run --wait"}
	}
	by, err := u.proven(e, g)
	if err != nil {
		return Tally{}, err
	}
	if slices.ContainsFunc(e.taken, func(o Event) bool { return o.Name == by.Name }) {
		return Tally{}, &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("%s has answered %s already", by.Name, g.Question), Hint: "somebody else's answer is wanted"}
	}
	return u.grant(ctx, e, g, by)
}

// find returns the open question that g answers.
func (u *Queue) find(g Given) (*entry, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	e := u.open[g.Question]
	switch {
	case e == nil || !e.recorded:
		return nil, closed(g.Question)
	case !u.c.Now().Before(e.q.Expires):
		return nil, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("question %s expired at %s", g.Question, stamp(e.q.Expires)), Hint: "have the call made again"}
	case g.Grant && g.Digest != e.q.Digest:
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("the answer is to another text than that of question %s", g.Question), Hint: "bailey approvals show " + string(g.Question)}
	}
	return e, nil
}

func closed(id bailey.ApprovalID) error {
	return &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no question %q is open", id), Hint: "bailey approvals list shows those that are; one is answered once, and ends at its expiry and with its call"}
}

// proven says whose grant it is. Whoever lacks a role has no part in it: an answer that cannot count is not taken.
func (u *Queue) proven(e *entry, g Given) (Approver, error) {
	if u.c.Prove == nil {
		return Approver{}, &bailey.Error{Kind: bailey.Unavailable, Message: "nothing here can tell whose answer it is", Hint: "start the gateway with approvers"}
	}
	by, err := u.c.Prove([]byte(e.q.Text), g)
	if err != nil {
		return Approver{}, err
	}
	if by.Name == "" {
		return Approver{}, &bailey.Error{Kind: bailey.Internal, Message: "an answer of nobody was proven"}
	}
	w := bailey.Combine(e.q.Rules)
	for _, role := range w.Roles {
		if !slices.Contains(by.Roles, role) {
			return Approver{}, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s does not hold the role %s, which the question wants", by.Name, role),
				Hint: "it takes an approver of settings.yaml with " + strings.Join(w.Roles, " and ")}
		}
	}
	if by.Level == bailey.Local && w.Count > 1 {
		return Approver{}, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("an unsigned answer is one person's at most, and the question wants %d", w.Count),
			Hint: "name approvers in settings.yaml, and have them sign"}
	}
	return by, nil
}

// grant records a grant and ends the question when enough have come. The caller has the turn.
func (u *Queue) grant(ctx context.Context, e *entry, g Given, by Approver) (Tally, error) {
	count := bailey.Combine(e.q.Rules).Count
	t := Tally{Names: append(u.standing(e), by.Name), Count: count}
	event := e.event(g, by)
	if len(t.Names) < count {
		if err := u.c.Note(context.WithoutCancel(ctx), "answer", event); err != nil {
			return Tally{}, &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("the answer to %s could not be recorded, so it does not count", e.q.ID), Hint: "see that the ledger can be written", Err: err}
		}
		e.given, e.taken = append(e.given, g), append(e.taken, event)
		return t, nil
	}
	if !u.takeInTime(e) {
		return Tally{}, closed(e.q.ID)
	}
	a := bailey.Answer{Reason: "granted by " + strings.Join(t.Names, ", ")}
	for _, r := range e.q.Rules {
		a.Granted = append(a.Granted, r.ID)
	}
	u.finish(e, a, event)
	t.Settled, t.Granted = true, e.err == nil
	return t, e.err
}

// takeInTime takes e unless its time is up, whether or not anybody has noticed.
func (u *Queue) takeInTime(e *entry) bool {
	return u.c.Now().Before(e.q.Expires) && u.take(e)
}

// standing are the names whose grants still count, by the approvers of now.
func (u *Queue) standing(e *entry) (names []string) {
	for i, g := range e.given {
		if by, err := u.proven(e, g); err == nil && by.Name == e.taken[i].Name {
			names = append(names, by.Name)
		}
	}
	return names
}

func (u *Queue) deny(e *entry, g Given) (Tally, error) {
	if !u.take(e) {
		return Tally{}, closed(e.q.ID)
	}
	reason := "denied by " + g.Person
	if g.Reason != "" {
		reason += ": " + g.Reason
	}
	event := e.event(g, Approver{Name: g.Person, Level: bailey.Local})
	event.Reason = reason
	u.finish(e, bailey.Answer{Reason: reason}, event)
	return Tally{Settled: true}, e.err
}

func (e *entry) event(g Given, by Approver) Event {
	return Event{ID: e.q.ID, Receipt: e.q.Receipt, Granted: g.Grant, Digest: e.q.Digest, Name: by.Name, Level: by.Level, Key: by.Key, Roles: by.Roles,
		Signature: g.Signature, Operator: g.Operator}
}

// Answers are those that were taken to an open question so far.
func (u *Queue) Answers(id bailey.ApprovalID) []Event {
	u.mu.Lock()
	e := u.open[id]
	u.mu.Unlock()
	if e == nil {
		return nil
	}
	e.turn.Lock()
	defer e.turn.Unlock()
	return slices.Clone(e.taken)
}
