package approve

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"bailey"
)

// sessionRule is a rule that asks once for each session.
type sessionRule struct {
	session                     bailey.SessionID
	agent, person, organisation string
	rule                        bailey.RuleID
	digest                      string // of the meaning of the rule
}

// sessionAnswer is an answer that holds for a session.
type sessionAnswer struct {
	e     *entry // with its answers, which are proven again at each use
	until time.Time
}

// maxAnswered limits the answers that hold for a session. Beyond it, each call is asked about.
const maxAnswered = 1000

// sessionRules returns the rules of a question, if an answer to it holds for the session: all of them ask once for each
// session, the call has a session to come back to, and a standing grant could cover the call.
func sessionRules(q bailey.Question) (rules []sessionRule) {
	if q.Session == "" || checkStandable(q, time.Second) != nil {
		return nil
	}
	for _, r := range q.Rules {
		if !r.Session {
			return nil
		}
		rules = append(rules, sessionRule{q.Session, q.Principal.Agent, q.Principal.Person, q.Principal.Organisation, r.ID, r.Digest})
	}
	return rules
}

// keepSessionAnswer keeps the answers of people to e for its session. A standing grant holds by itself.
func (u *Queue) keepSessionAnswer(e *entry) {
	if slices.ContainsFunc(u.takenOf(e), func(t Event) bool { return t.Standing != "" }) {
		return
	}
	now := u.c.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.answered, func(_ sessionRule, a sessionAnswer) bool { return hasPassed(now, a.until) })
	for _, r := range sessionRules(e.q) {
		if len(u.answered) < maxAnswered {
			u.answered[r] = sessionAnswer{e, now.Add(MaxStanding)}
		}
	}
}

// ForgetAnswers ends all answers that hold for a session.
func (u *Queue) ForgetAnswers() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.answered)
}

// useSessionAnswer lets a call through if a person has answered all its asking rules in this session, and records which
// answer is used.
func (u *Queue) useSessionAnswer(ctx context.Context, q bailey.Question) (a bailey.Answer, ok bool, err error) {
	rules := sessionRules(q)
	var names []string
	var first *entry // one answer must cover all rules: together they may want more than each alone
	for _, r := range rules {
		u.mu.Lock()
		s, ok := u.answered[r]
		u.mu.Unlock()
		if !ok || hasPassed(u.c.Now(), s.until) || first != nil && s.e != first {
			return bailey.Answer{}, false, nil
		}
		first = s.e
		proven := u.provenNames(s.e)
		if len(proven) < bailey.Combine(s.e.q.Rules).Count {
			return bailey.Answer{}, false, nil // its author is no longer allowed to approve
		}
		a.Question = s.e.q.ID
		a.Granted = append(a.Granted, r.rule)
		names = append(names, proven...)
	}
	if len(rules) == 0 {
		return bailey.Answer{}, false, nil
	}
	if err := u.c.Note(context.WithoutCancel(ctx), UseEvent, Use{Question: a.Question, Receipt: q.Receipt, At: u.c.Now()}); err != nil {
		return bailey.Answer{}, false, bailey.Unavailable.Wrap(err, "cannot record the use of an approval, so the call does not run",
			"make sure that the ledger can be written, then call again")
	}
	a.Reason = "granted for this session by " + strings.Join(slices.Compact(names), ", ")
	return a, true, nil
}

// releaseAnswered ends the other open questions that the answer to e covers, so that their calls use it.
func (u *Queue) releaseAnswered(e *entry) {
	if sessionRules(e.q) == nil {
		return
	}
	for _, other := range u.recordedEntries() {
		if !u.isSessionAnswered(other.q) {
			continue
		}
		other.turn.Lock()
		if granted, _, _, _ := u.entryState(other); !granted {
			u.mu.Lock()
			other.used = true // its callers ask again, and find the answer
			u.mu.Unlock()
			u.endQuestion(other, Event{Reason: "covered by the answer to " + string(e.q.ID)})
		}
		other.turn.Unlock()
	}
}

// isSessionAnswered reports whether people have answered all asking rules of q in its session.
func (u *Queue) isSessionAnswered(q bailey.Question) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	rules := sessionRules(q)
	return len(rules) > 0 && !slices.ContainsFunc(rules, func(r sessionRule) bool { _, ok := u.answered[r]; return !ok })
}

// forgetSession removes the answers that hold for a session.
func (u *Queue) forgetSession(s bailey.SessionID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.answered, func(r sessionRule, _ sessionAnswer) bool { return r.session == s })
}
