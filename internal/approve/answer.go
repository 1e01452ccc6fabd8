package approve

import (
	"context"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/passkey"
)

// Given is an answer as it arrives.
type Given struct {
	Question  bailey.ApprovalID
	Digest    string // of the answered text
	Grant     bool
	Reason    string // of a denial
	Signature string // SSHSIG over the text, armoured, or the answer of a passkey; "" if unsigned
	Person    string // the person, as the front end knows them
	Operator  string // how operator rights were established, for example by a terminal
}

// Approver is the author of an answer.
type Approver struct {
	Name  string
	Level bailey.Level
	Key   string // fingerprint
	Roles []string
	// Counter is how often a passkey has signed, 0 if it does not count. It must grow from answer to answer.
	Counter uint32
}

// Tally is the state of a question after an answer.
type Tally struct {
	Settled bool     `json:"settled"`
	Granted bool     `json:"granted"`
	Names   []string `json:"names"` // of those whose grants count
	Count   int      `json:"count"` // grants that are required
}

// Answer records one answer durably. Anyone may deny: a denial ends the question and revokes grants that were not used
// yet. A grant must be proven, and its author must have every role and the level that the asking rules require; each
// name counts once. The question is granted when the required number of people has granted it.
func (u *Queue) Answer(ctx context.Context, g Given) (Tally, error) {
	e, err := u.findOpen(g.Question)
	if err != nil {
		return Tally{}, err
	}
	e.turn.Lock()
	defer e.turn.Unlock()
	if !g.Grant {
		return u.denyQuestion(e, g)
	}
	if err := u.checkAnswerable(e, g); err != nil {
		return Tally{}, err
	}
	by, err := u.proveAuthor(e.q.Text, e.q.Rules, g)
	if err != nil {
		return Tally{}, err
	}
	if slices.ContainsFunc(u.takenOf(e), func(o Event) bool { return o.Name == by.Name }) {
		return Tally{}, bailey.Conflict.Errorf("ask another approver to answer",
			"%s has answered %s already", by.Name, g.Question)
	}
	if err := u.advanceCounter(by); err != nil {
		return Tally{}, err
	}
	return u.grantQuestion(ctx, e, g, by)
}

// advanceCounter refuses an answer of a passkey whose counter does not follow that of its last answer.
func (u *Queue) advanceCounter(by Approver) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := passkey.CheckCounter(u.counters[by.Key], by.Counter); err != nil {
		return err
	}
	if by.Counter > 0 {
		u.counters[by.Key] = by.Counter
	}
	return nil
}

// findOpen returns a question that has not ended.
func (u *Queue) findOpen(id bailey.ApprovalID) (*entry, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	e := u.live[id]
	if e == nil || !e.recorded {
		return nil, notOpenError(id)
	}
	return e, nil
}

// checkAnswerable refuses a grant that is too late, or for another text.
func (u *Queue) checkAnswerable(e *entry, g Given) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case e.done:
		return notOpenError(g.Question)
	case hasPassed(u.c.Now(), e.q.Expires):
		return bailey.Denied.Errorf("repeat the call",
			"question %s expired at %s", g.Question, formatTime(e.q.Expires))
	case !e.granted.IsZero():
		return bailey.Conflict.Errorf("run: bailey deny, to take it back",
			"question %s is already granted; its call has not been repeated yet", g.Question)
	case g.Digest != e.q.Digest:
		return bailey.Conflict.Errorf("run: bailey approvals show "+string(g.Question),
			"the answer is to another text than that of question %s", g.Question)
	}
	return nil
}

func notOpenError(id bailey.ApprovalID) error {
	return bailey.NotFound.Errorf("run bailey approvals list to show the open questions; each is answered once and ends at its expiry",
		"no question %q is open", id)
}

// proveAuthor returns the author of an answer to a text. If the author does not meet the rules, prove returns an error:
// an answer that cannot count is not recorded.
func (u *Queue) proveAuthor(text string, rules []bailey.Rule, g Given) (Approver, error) {
	if u.c.Prove == nil {
		return Approver{}, bailey.Unavailable.New("cannot verify who answered",
			"start the gateway with approvers")
	}
	by, err := u.c.Prove([]byte(text), g)
	if err != nil {
		return Approver{}, err
	}
	if by.Name == "" {
		return Approver{}, bailey.Internal.New("the identity of the approver was not proven", "")
	}
	w := bailey.Combine(rules)
	for _, role := range w.Roles {
		if !slices.Contains(by.Roles, role) {
			return Approver{},
				bailey.Denied.Errorf("answer as an approver of settings.yaml with "+strings.Join(w.Roles, " and "),
					"%s does not have the role %s, which the question requires", by.Name, role)
		}
	}
	switch {
	case by.Level == bailey.Local && w.Count > 1:
		return Approver{}, bailey.Denied.Errorf("name approvers in settings.yaml, and have them sign",
			"an unsigned answer counts for one person, but the question requires %d", w.Count)
	case !by.Level.Meets(w.Level):
		return Approver{}, bailey.Denied.Errorf(levelHint(w.Level),
			"the answer has level %s, but the question requires %s", by.Level, w.Level)
	}
	return by, nil
}

// levelHint says how to answer at a level.
func levelHint(l bailey.Level) string {
	switch l {
	case bailey.SignedTouch:
		return "sign with a key that requires a touch (ssh-keygen -t ed25519-sk) and is listed in settings.yaml under approvers: bailey approve ID --key FILE"
	case bailey.SignedSoftware:
		return "sign with a key that is listed in settings.yaml under approvers: bailey approve ID --key FILE"
	}
	return "correct the rule: this version does not know that level"
}

// grantQuestion records a grant, and that the question is settled if it was the last one required. The caller must hold
// e.turn.
func (u *Queue) grantQuestion(ctx context.Context, e *entry, g Given, by Approver) (Tally, error) {
	t := Tally{Names: append(u.provenNames(e), by.Name), Count: bailey.Combine(e.q.Rules).Count}
	event := e.newEvent(g, by)
	event.At, event.Settled = u.c.Now(), len(t.Names) >= t.Count
	if event.Settled {
		event.Reason = grantedBy + strings.Join(t.Names, ", ")
	}
	if err := u.recordAnswer(ctx, e, event); err != nil {
		return Tally{}, err
	}
	t.Settled, t.Granted = event.Settled, event.Settled
	return t, nil
}

// grantedBy begins the reason of a question that was granted. Reasons with words of others begin in another way.
const grantedBy = "granted by "

// IsGrant reports whether the reason that Config.Tell gets for the end of a question is that of a grant.
func IsGrant(reason string) bool { return strings.HasPrefix(reason, grantedBy) }

// recordAnswer records a granting answer, then counts it. If it settles the question, the call can continue.
func (u *Queue) recordAnswer(ctx context.Context, e *entry, event Event) error {
	if err := u.c.Note(context.WithoutCancel(ctx), AnswerEvent, event); err != nil {
		return bailey.Unavailable.Wrapf(err, "make sure that the ledger can be written",
			"cannot record the answer to %s, so it has no effect", e.q.ID)
	}
	if event.Settled {
		defer u.c.Tell(settled, cloneQuestion(e.q), event.Reason) // after mu is unlocked
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	e.taken = append(e.taken, event)
	if event.Settled {
		e.granted = event.At
		close(e.over)
		u.wakeRun()
	}
	return nil
}

// provenNames returns the names whose grants still count, each once, according to the current approvers.
func (u *Queue) provenNames(e *entry) (names []string) {
	for _, t := range u.takenOf(e) {
		if t.Standing != "" {
			if g, ok := u.grantOf(t.Standing); ok && u.coversQuestion(g, e.q) && u.isGrantValid(g) {
				names = append(names, "the grant "+string(t.Standing))
			}
			continue
		}
		if by, err := u.proveAuthor(e.q.Text, e.q.Rules, t.asGiven()); err == nil && by.Name == t.Name && !slices.Contains(names, by.Name) {
			names = append(names, by.Name)
		}
	}
	return names
}

// asGiven returns a recorded answer in the form in which it is proven again.
func (e Event) asGiven() Given {
	return Given{Question: e.ID, Digest: e.Digest, Grant: true, Signature: e.Signature, Person: e.Name,
		Operator: e.Operator}
}

func (u *Queue) denyQuestion(e *entry, g Given) (Tally, error) {
	reason := "denied by " + g.Person
	if _, _, _, err := u.entryState(e); err != nil {
		return Tally{}, err
	}
	if g.Reason != "" {
		reason += ": " + g.Reason
	}
	event := e.newEvent(g, Approver{Name: g.Person, Level: bailey.Local})
	event.Reason = reason
	if !u.endQuestion(e, event) {
		return Tally{}, notOpenError(e.q.ID)
	}
	return Tally{Settled: true}, e.err
}

func (e *entry) newEvent(g Given, by Approver) Event {
	return Event{ID: e.q.ID, Receipt: e.q.Receipt, Granted: g.Grant, Digest: e.q.Digest, Name: by.Name, Level: by.Level,
		Key: by.Key, Roles: by.Roles, Counter: by.Counter,
		Signature: g.Signature, Operator: g.Operator}
}

func (u *Queue) takenOf(e *entry) []Event {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(e.taken)
}
