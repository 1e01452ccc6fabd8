package approve

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"bailey"
)

// The kinds that Config.Tell gets.
const Opened, settled = "question.open", "question.settled"

var errEnding = errors.New("the gateway ended")

// Run ends questions that are not answered or used in time, until ctx ends. Then it closes the queue. The ledger must
// outlive it.
func (u *Queue) Run(ctx context.Context) error {
	for _, s := range u.Open() { // the previous queue may not have told of these
		if s.Granted.IsZero() && slices.Contains(u.again, s.ID) {
			u.c.Tell(Opened, s.Question, "")
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			u.Close()
			return nil
		case <-timer.C:
		case <-u.wake:
		}
		timer.Reset(u.expireDue())
	}
}

// Close releases waiting callers and refuses further questions. Open questions stay open for the queue that takes them
// over.
func (u *Queue) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !isClosed(u.ended) {
		close(u.ended)
	}
}

// expireDue ends the questions that are due and returns the time until the next one.
func (u *Queue) expireDue() time.Duration {
	now, next := u.c.Now(), u.c.TTL
	for _, e := range u.recordedEntries() {
		due, reason := u.dueTime(e)
		if !hasPassed(now, due) {
			next = min(next, due.Sub(now))
			continue
		}
		u.endIfDue(e, reason)
	}
	return max(next, 0)
}

// dueTime returns when e ends by itself, and why.
func (u *Queue) dueTime(e *entry) (time.Time, string) {
	if granted, _, _, _ := u.entryState(e); granted {
		until := u.runsUntil(e)
		return until, "what was granted was not used by " + formatTime(until)
	}
	return e.q.Expires, expiryReason(e.q)
}

// recordedEntries returns the questions that are durable and have not ended, oldest first.
func (u *Queue) recordedEntries() []*entry {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []*entry
	for _, e := range u.live {
		if e.recorded {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int {
		return cmp.Or(a.q.AskedAt.Compare(b.q.AskedAt), cmp.Compare(a.q.ID, b.q.ID))
	})
	return all
}

// endIfDue ends e if it is due, without a person. It may have been answered meanwhile.
func (u *Queue) endIfDue(e *entry, reason string) {
	e.turn.Lock()
	defer e.turn.Unlock()
	if due, _ := u.dueTime(e); hasPassed(u.c.Now(), due) {
		u.endQuestion(e, Event{Reason: reason})
	}
}

// Withdraw ends every question for which want returns true. This is a denial without a person, so it is not remembered.
func (u *Queue) Withdraw(reason string, want func(bailey.Question) bool) {
	for _, e := range u.recordedEntries() {
		if want(e.q) {
			e.turn.Lock()
			u.endQuestion(e, Event{Reason: reason})
			e.turn.Unlock()
		}
	}
}

// endQuestion denies e and records why. If that cannot be recorded, e has ended nevertheless and grants nothing any
// more. It reports whether this call ended e. The caller must hold e.turn.
func (u *Queue) endQuestion(e *entry, event Event) bool {
	if u.isOver(e) {
		return false
	}
	event.ID, event.Receipt, event.Settled, event.At = e.q.ID, e.q.Receipt, true, u.c.Now()
	err := u.c.Note(context.Background(), AnswerEvent, event)
	defer u.c.Tell(settled, cloneQuestion(e.q), event.Reason) // after mu is unlocked; e has ended, recorded or not
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		e.err = bailey.Unavailable.Wrapf(err, "make sure that the ledger can be written",
			"cannot record the denial of question %s (%s)", e.q.ID, event.Reason)
		u.c.Log.Error("an answer is not in the ledger", "question", e.q.ID, "receipt", e.q.Receipt, "err", err)
	}
	if event.Name != "" {
		maps.DeleteFunc(u.denied, func(_ string, d Denial) bool { return event.At.Sub(d.At) >= DenialTTL })
		u.denied[e.q.Alike] = Denial{Question: e.q.ID, Reason: event.Reason, At: event.At}
	}
	u.removeEntry(e, event.Reason)
	return true
}

func (u *Queue) isOver(e *entry) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return e.done
}

// wakeRun makes Run check the time again. One pending signal is enough.
func (u *Queue) wakeRun() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

func expiryReason(q bailey.Question) string { return "it was not answered by " + formatTime(q.Expires) }

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// End withdraws the questions that only this session could return to.
func (u *Queue) End(s bailey.SessionID) {
	if s != "" {
		u.forgetSession(s)
		u.Withdraw("withdrawn: its session ended", func(q bailey.Question) bool { return q.Session == s })
		u.EndGrants("its session ended", ForSession(s))
	}
}

// waitEndedError returns the error for a caller that no longer waits, whose question stays open.
func waitEndedError(id bailey.ApprovalID, cause error) error {
	e := bailey.Unavailable.Wrapf(cause,
		cmp.Or(bailey.HintOf(cause), "repeat the same call to use an approval given meanwhile"),
		"the call stopped waiting for the answer to %s", id)
	// these errors have no text for a person
	if cause == nil || cause == context.Canceled || cause == context.DeadlineExceeded {
		e.Message += ": the caller disconnected"
	}
	return e
}

// Seen is an open question, as a person sees it.
type Seen struct {
	bailey.Question
	Waits   int       // waiting callers
	Answers []Event   // recorded answers
	Granted time.Time // since when it waits for its call to be made again; zero: not granted
	RunBy   time.Time // if granted: the time limit for the run
	Lapsed  string    // why the grant no longer counts
}

// Open lists the questions that a person can be shown, oldest first.
func (u *Queue) Open() []Seen {
	var list []Seen
	for _, e := range u.recordedEntries() {
		s := Seen{Question: cloneQuestion(e.q), Answers: u.takenOf(e), RunBy: u.runsUntil(e)}
		u.mu.Lock()
		s.Waits, s.Granted = e.waits, e.granted
		over := e.done
		u.mu.Unlock()
		if !s.Granted.IsZero() {
			s.Lapsed = u.lapseReason(e)
		}
		if !over {
			list = append(list, s)
		}
	}
	return list
}
