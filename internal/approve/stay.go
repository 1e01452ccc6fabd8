package approve

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"time"

	"bailey"
	"bailey/internal/approvaltext"
)

// waitForAnswer waits for the answer to e as long as q's caller does, and uses it. If again is true, another call has
// used the grant, or it no longer counts: the call must ask again.
func (u *Queue) waitForAnswer(ctx context.Context, e *entry,
	q bailey.Question) (a bailey.Answer, again bool, err error) {
	if q.Patience > 0 && u.addWaiter(e) {
		u.waitUntilOver(ctx, e, q)
		u.removeWaiter(e)
	}
	switch granted, used, reason, failed := u.entryState(e); {
	case failed != nil:
		return bailey.Answer{Question: e.q.ID, Reason: reason}, false, failed
	case granted:
		a, again, err := u.useGrant(ctx, e, q)
		if err == nil && !again {
			u.releaseAnswered(e)
		}
		return a, again, err
	case used:
		return a, true, nil
	case reason != "":
		return bailey.Answer{Question: e.q.ID, Reason: reason}, false, nil
	case ctx.Err() != nil:
		return bailey.Answer{}, false, waitEndedError(e.q.ID, context.Cause(ctx))
	case isClosed(u.ended):
		return bailey.Answer{}, false, waitEndedError(e.q.ID, errEnding)
	}
	return bailey.Answer{Question: e.q.ID, Pending: true, Expires: e.q.Expires,
		Reason: "waits for a person until " + formatTime(e.q.Expires)}, false, nil
}

// waitUntilOver returns when e is answered or has ended, the patience is over, the queue is closed, or the caller
// leaves.
func (u *Queue) waitUntilOver(ctx context.Context, e *entry, q bailey.Question) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if q.Asked != nil {
		shown := cloneQuestion(e.q)
		go q.Asked(ctx, shown)
	}
	patience, expiry := time.NewTimer(q.Patience), time.NewTimer(e.q.Expires.Sub(u.c.Now()))
	defer patience.Stop()
	defer expiry.Stop()
	select {
	case <-e.over:
	case <-patience.C:
	case <-u.ended:
	case <-ctx.Done():
	case <-expiry.C:
		u.endIfDue(e, expiryReason(e.q))
	}
}

// addWaiter reserves a place for a waiting caller, if there is one.
func (u *Queue) addWaiter(e *entry) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stays >= MaxStay {
		return false
	}
	u.stays++
	e.waits++
	return true
}

func (u *Queue) removeWaiter(e *entry) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stays--
	e.waits--
}

// entryState returns the state of e.
func (u *Queue) entryState(e *entry) (granted, used bool, reason string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !e.granted.IsZero() && !e.done, e.used, e.reason, e.err
}

// useGrant uses a grant for this call only. The use is recorded before the call continues. If that fails, nothing must
// run, because a gateway that starts again would take the grant for unused.
func (u *Queue) useGrant(ctx context.Context, e *entry, q bailey.Question) (a bailey.Answer, again bool, err error) {
	e.turn.Lock()
	defer e.turn.Unlock()
	if granted, _, _, _ := u.entryState(e); !granted {
		return a, true, nil
	}
	if why := cmp.Or(u.lapseReason(e), u.mismatchReason(e, q)); why != "" {
		u.endQuestion(e, Event{Reason: why})
		return a, true, nil
	}
	if err := ctx.Err(); err != nil {
		return a, false, waitEndedError(e.q.ID, context.Cause(ctx))
	}
	use := Use{Question: e.q.ID, Receipt: q.Receipt, At: u.c.Now()}
	if err := u.c.Note(context.WithoutCancel(ctx), UseEvent, use); err != nil {
		return a, false, bailey.Unavailable.Wrapf(err, "make sure that the ledger can be written, then call again",
			"cannot record the use of the approval of %s, so the call does not run", e.q.ID)
	}
	a = bailey.Answer{Question: e.q.ID, Reason: "granted by " + strings.Join(u.provenNames(e), ", "), Text: e.q.Text}
	for _, r := range e.q.Rules {
		a.Granted = append(a.Granted, r.ID)
	}
	for _, t := range u.takenOf(e) {
		if t.Standing != "" {
			a.Standing = append(a.Standing, t.Standing)
		} else if t.Signature != "" {
			a.Signatures = append(a.Signatures, t.Signature)
		}
	}
	u.keepSessionAnswer(e)
	u.mu.Lock()
	defer u.mu.Unlock()
	e.used = true
	u.removeEntry(e, "")
	return a, false, nil
}

// lapseReason returns why the grant no longer counts, or "".
func (u *Queue) lapseReason(e *entry) string {
	if until := u.runsUntil(e); hasPassed(u.c.Now(), until) {
		return "what was granted was not used by " + formatTime(until)
	}
	// a standing grant never covers a question that requires two people
	if len(u.provenNames(e)) < bailey.Combine(e.q.Rules).Count {
		return "an approver of it is no longer allowed to approve"
	}
	return ""
}

// mismatchReason returns a reason if the answer was to another call than q, whatever the ledger says: q's text, with
// the question's own fields, must equal the answered text.
func (u *Queue) mismatchReason(e *entry, q bailey.Question) string {
	q.ID, q.Receipt, q.Nonce, q.AskedAt, q.Expires, q.Until = e.q.ID, e.q.Receipt, e.q.Nonce, e.q.AskedAt, e.q.Expires, e.q.Until
	if approvaltext.Text(q, u.c.Key) != e.q.Text {
		return "its text is of another call"
	}
	return ""
}

// runsUntil returns when a grant of e expires: its rules' time after it was given, but not after Until.
func (u *Queue) runsUntil(e *entry) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	until := e.granted.Add(e.q.Expires.Sub(e.q.AskedAt))
	if e.q.Until.Before(until) {
		return e.q.Until
	}
	return until
}

// restoreState takes over the state of another queue. Grants are proven again when they are used.
func (u *Queue) restoreState(past State) {
	for id, k := range past.Questions {
		q, err := approvaltext.Parse(k.Question.Text)
		if err != nil || q.ID != id || approvaltext.Digest(k.Question.Text) != k.Question.Digest {
			u.c.Log.Error("a question in the ledger is malformed", "question", id, "err", err)
			continue
		}
		q.Text, q.Digest, q.Subject, q.Alike = k.Question.Text, k.Question.Digest, k.Question.Subject, k.Question.Alike
		e := &entry{q: q, over: make(chan struct{}), recorded: true, taken: k.Answers, granted: k.Granted}
		if !k.Granted.IsZero() {
			close(e.over)
		}
		u.addEntry(e)
	}
	for alike, d := range past.Denied {
		u.denied[alike] = d
	}
	for id, g := range past.Grants {
		u.grants[id] = g
	}
	maps.Copy(u.counters, past.Counters)
}
