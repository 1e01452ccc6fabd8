package approve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/approvaltext"
)

const (
	// MaxStanding limits the duration of a standing grant: a working day, and the night after it.
	MaxStanding = 24 * time.Hour
	maxGrants   = 1000
	maxDrafts   = 64
	draftTTL    = 10 * time.Minute
)

// draft is a grant whose text was shown to a person who may give it.
type draft struct {
	question bailey.ApprovalID
	text     string
	at       time.Time
	until    time.Time
}

// Draft returns the text of a grant that would answer an open question, and similar calls, for the given duration. If
// session is set, the grant is for the session of the question and ends with it.
func (u *Queue) Draft(id bailey.ApprovalID, long time.Duration, session bool) (text string, err error) {
	e, err := u.findOpen(id)
	if err != nil {
		return "", err
	}
	if err := checkStandable(e.q, long); err != nil {
		return "", err
	}
	now := u.c.Now()
	g := bailey.Grant{ID: bailey.NewGrantID(), Capability: e.q.Call, Principal: e.q.Principal, Rules: e.q.Rules,
		Nonce: newNonce(), Given: now, Until: now.Add(long)}
	if session {
		if g.Session = e.q.Session; g.Session == "" {
			return "", bailey.Invalid.New("the call of this question belongs to no session that lasts",
				"run bailey approve "+string(id)+" --for 8h, or begin a session before the calls: eval \"$(bailey session)\"")
		}
	}
	text = approvaltext.GrantText(g)
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.drafts, func(_ bailey.GrantID, d draft) bool { return now.Sub(d.at) >= draftTTL })
	if len(u.drafts) >= maxDrafts {
		return "", bailey.Unavailable.Errorf("try again in a few minutes", "too many drafts: %d", len(u.drafts))
	}
	u.drafts[g.ID] = draft{id, text, now, g.Until}
	return text, nil
}

// CanStand reports whether a grant for its session can answer a question.
func CanStand(q bailey.Question) bool {
	return q.Session != "" && checkStandable(q, MaxStanding) == nil
}

// checkStandable returns an error if a question must be asked each time, for example because the effect is
// irreversible.
func checkStandable(q bailey.Question, long time.Duration) error {
	say := func(why, hint string) error {
		return bailey.Invalid.New("a grant cannot allow this: "+why, hint)
	}
	switch w := bailey.Combine(q.Rules); {
	case long < time.Second || long > MaxStanding:
		return say(fmt.Sprintf("%v is not between %v and %v", long, time.Second, MaxStanding),
			"set the duration with --for, for example 1h30m")
	case w.Count > 1:
		return say(fmt.Sprintf("its rules require %d people", w.Count), "approve the question itself")
	case strings.Contains(q.Impact+", ", ", irreversible, "): // what the call signs may follow
		return say("its effect is irreversible", "approve the question itself")
	case slices.ContainsFunc(q.Leases, func(l bailey.LeaseScope) bool { return l.Approval }):
		return say("one of its credentials requires an answer for each call", "approve the question itself")
	}
	return nil
}

// Stand takes a drafted grant: g.Digest must be that of its text, and a signature must be over its text. The grant
// answers the question for which it was drafted and every other open question that it covers.
func (u *Queue) Stand(ctx context.Context, id bailey.GrantID, g Given) (Standing, error) {
	s, err := u.recordStanding(ctx, id, g)
	if err == nil {
		u.answerCovered(ctx, s)
	}
	return s, err
}

// recordStanding records a grant, which is valid from then on.
func (u *Queue) recordStanding(ctx context.Context, id bailey.GrantID, g Given) (Standing, error) {
	d, e, err := u.findDraft(id, g)
	if err != nil {
		return Standing{}, err
	}
	now := u.c.Now()
	grant, err := approvaltext.ParseGrant(d.text)
	if err != nil {
		return Standing{}, err
	}
	g.Question = d.question
	by, err := u.proveAuthor(d.text, grant.Rules, g)
	if err != nil {
		return Standing{}, err
	}
	if err := u.advanceCounter(by); err != nil {
		return Standing{}, err
	}
	s := Standing{ID: id, Question: d.question, Text: d.text, Until: d.until, By: e.newEvent(g, by)}
	s.By.At, s.By.Digest = now, g.Digest
	if err := u.c.Note(context.WithoutCancel(ctx), GrantEvent, s); err != nil {
		return Standing{}, bailey.Unavailable.Wrap(err, "cannot record the grant, so it is not valid",
			"make sure that the ledger can be written")
	}
	u.mu.Lock()
	u.grants[id] = s
	delete(u.drafts, id)
	u.mu.Unlock()
	return s, nil
}

// findDraft returns a draft and its question.
func (u *Queue) findDraft(id bailey.GrantID, g Given) (d draft, e *entry, err error) {
	u.mu.Lock()
	d, ok := u.drafts[id]
	n := len(u.grants)
	u.mu.Unlock()
	switch {
	case !ok || u.c.Now().Sub(d.at) >= draftTTL:
		return d, nil, bailey.NotFound.Errorf("run bailey approve ID --for 1h to start over",
			"no draft of a grant %q", id)
	case approvaltext.Digest(d.text) != g.Digest:
		return d, nil, bailey.Conflict.New("the answer is to another text than that of the grant",
			"run bailey approve ID --for 1h to start over")
	case n >= maxGrants:
		return d, nil, bailey.Unavailable.Errorf("run bailey grants revoke to end one",
			"%d grants are active, the maximum", n)
	}
	if e, err = u.findOpen(d.question); err == nil {
		err = u.checkAnswerable(e, Given{Question: d.question, Digest: e.q.Digest})
	}
	return d, e, err
}

// answerCovered answers all open questions that the grant covers.
func (u *Queue) answerCovered(ctx context.Context, s Standing) {
	for _, e := range u.recordedEntries() {
		if u.coversQuestion(s, e.q) {
			e.turn.Lock()
			u.answerBy(ctx, e, s)
			e.turn.Unlock()
		}
	}
}

// answerFromGrants answers a question with a grant that was given while the question was being opened.
func (u *Queue) answerFromGrants(ctx context.Context, e *entry) {
	s, ok := u.findCovering(e.q)
	if !ok {
		return
	}
	e.turn.Lock()
	defer e.turn.Unlock()
	u.answerBy(ctx, e, s)
}

// answerBy settles a question with a grant. If that cannot be recorded, the question stays open, and its call uses the
// grant later. The caller must hold e.turn.
func (u *Queue) answerBy(ctx context.Context, e *entry, s Standing) {
	if granted, _, _, _ := u.entryState(e); granted || u.isOver(e) {
		return
	}
	if _, denied := u.recentDenial(e.q); denied { // a person denied exactly this call
		return
	}
	err := u.recordAnswer(ctx, e,
		Event{ID: e.q.ID, Receipt: e.q.Receipt, At: u.c.Now(), Granted: true, Settled: true, Standing: s.ID,
			Digest: e.q.Digest, Name: s.By.Name, Level: s.By.Level, Reason: "granted by the grant " + string(s.ID)})
	if err != nil {
		u.c.Log.Error("a grant in the ledger answers no question", "question", e.q.ID, "grant", s.ID, "err", err)
	}
}

// useStanding lets a call through if a grant covers it, and records which grant.
func (u *Queue) useStanding(ctx context.Context, q bailey.Question) (a bailey.Answer, ok bool, err error) {
	g, ok := u.findCovering(q)
	if !ok {
		return a, false, nil
	}
	if err := u.c.Note(context.WithoutCancel(ctx), UseEvent,
		Use{Standing: []bailey.GrantID{g.ID}, Receipt: q.Receipt, At: u.c.Now()}); err != nil {
		return a, false, bailey.Unavailable.Wrap(err, "cannot record the use of a grant, so the call does not run",
			"make sure that the ledger can be written, then call again")
	}
	a = bailey.Answer{Question: g.Question, Standing: []bailey.GrantID{g.ID},
		Reason: "granted by the grant " + string(g.ID)}
	for _, r := range q.Rules {
		a.Granted = append(a.Granted, r.ID)
	}
	return a, true, nil
}

// findCovering returns a grant that covers all rules of a question.
func (u *Queue) findCovering(q bailey.Question) (Standing, bool) {
	for _, s := range u.Grants() {
		if u.coversQuestion(s, q) && u.isGrantValid(s) {
			return s, true
		}
	}
	return Standing{}, false
}

// coversQuestion reports whether the grant is for the same capability and principal, and contains every asking rule
// with the same meaning.
func (u *Queue) coversQuestion(s Standing, q bailey.Question) bool {
	g, err := approvaltext.ParseGrant(s.Text)
	if err != nil || len(q.Rules) == 0 || checkStandable(q, time.Second) != nil {
		return false
	}
	same := g.Capability == q.Call && (g.Session == "" || g.Session == q.Session) && g.Principal.Agent == q.Principal.Agent &&
		g.Principal.Person == q.Principal.Person && g.Principal.Organisation == q.Principal.Organisation
	for _, r := range q.Rules {
		same = same && slices.ContainsFunc(g.Rules, func(o bailey.Rule) bool { return o.ID == r.ID && o.Digest == r.Digest })
	}
	return same
}

// isGrantValid proves a grant again: its author must still have the right to give it.
func (u *Queue) isGrantValid(s Standing) bool {
	g, err := approvaltext.ParseGrant(s.Text)
	if err != nil || g.ID != s.ID || approvaltext.Digest(s.Text) != s.By.Digest || hasPassed(u.c.Now(), g.Until) ||
		hasPassed(u.c.Now(), s.Until) {
		return false
	}
	by, err := u.proveAuthor(s.Text, g.Rules, s.By.asGiven())
	return err == nil && by.Name == s.By.Name
}

func (u *Queue) grantOf(id bailey.GrantID) (Standing, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s, ok := u.grants[id]
	return s, ok
}

// Grants returns the grants that have not expired, oldest first.
func (u *Queue) Grants() []Standing {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.c.Now()
	maps.DeleteFunc(u.grants, func(_ bailey.GrantID, s Standing) bool { return hasPassed(now, s.Until) })
	return slices.SortedFunc(maps.Values(u.grants),
		func(a, b Standing) int { return strings.Compare(string(a.ID), string(b.ID)) })
}

// Revoke ends a grant. It ends the grant before this is recorded: if the write fails, the grant must not let further
// calls through.
func (u *Queue) Revoke(ctx context.Context, r Revoked) error {
	u.mu.Lock()
	_, ok := u.grants[r.ID]
	delete(u.grants, r.ID)
	u.mu.Unlock()
	u.takeBack(r.ID)
	if !ok {
		return bailey.NotFound.Errorf("run bailey grants list to show the active grants", "no grant %q is active", r.ID)
	}
	if err := u.c.Note(context.WithoutCancel(ctx), RevokeEvent, r); err != nil {
		return bailey.Unavailable.Wrapf(err, "repair the ledger's disk, restart the gateway, then revoke it again",
			"the grant %s has ended, but that could not be recorded: it would be active again after a restart", r.ID)
	}
	return nil
}

// takeBack ends the questions that a grant answered and whose calls have not been made again.
func (u *Queue) takeBack(id bailey.GrantID) {
	for _, e := range u.recordedEntries() {
		e.turn.Lock()
		if slices.ContainsFunc(u.takenOf(e), func(t Event) bool { return t.Standing == id }) {
			u.endQuestion(e, Event{Reason: "taken back: the grant " + string(id) + " was revoked"})
		}
		e.turn.Unlock()
	}
}

// EndGrants ends the grants that want accepts, because of reason.
func (u *Queue) EndGrants(reason string, want func(bailey.Grant) bool) {
	for _, s := range u.Grants() {
		g, err := approvaltext.ParseGrant(s.Text)
		if err != nil || !want(g) {
			continue
		}
		if err := u.Revoke(context.Background(), Revoked{ID: s.ID, Reason: reason}); err != nil {
			u.c.Log.Error("the end of a grant is not in the ledger", "grant", s.ID, "err", err)
		}
	}
}

// ForSession selects the grants for one session; "" selects those for any one.
func ForSession(id bailey.SessionID) func(bailey.Grant) bool {
	return func(g bailey.Grant) bool { return g.Session != "" && (id == "" || g.Session == id) }
}
