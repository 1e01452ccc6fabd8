package approve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"bailey"
)

// What Config.Tell is told.
const opened, settled = "question.open", "question.settled"

var errEnding = errors.New("the gateway ended")

// Run ends what nobody answered or used in time, until ctx ends; then it closes the queue. The ledger must outlive it.
func (u *Queue) Run(ctx context.Context) error {
	for _, s := range u.Open() { // who was to be told by the queue before may not have been
		if s.Granted.IsZero() && slices.Contains(u.again, s.ID) {
			u.c.Tell(opened, s.Question, "")
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
		timer.Reset(u.expire())
	}
}

// Close lets go whoever waits, and refuses questions to come. What is open stays so, for the queue that goes on with it.
func (u *Queue) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !isClosed(u.ended) {
		close(u.ended)
	}
}

// expire ends what is due and returns how long nothing else will be.
func (u *Queue) expire() time.Duration {
	now, next := u.c.Now(), u.c.TTL
	for _, e := range u.entries() {
		due, reason := u.due(e)
		if !passed(now, due) {
			next = min(next, due.Sub(now))
			continue
		}
		u.end(e, reason)
	}
	return max(next, 0)
}

// due is when e ends by itself, and why.
func (u *Queue) due(e *entry) (time.Time, string) {
	if granted, _, _, _ := u.look(e); granted {
		until := u.runsUntil(e)
		return until, "what was granted was not used by " + stamp(until)
	}
	return e.q.Expires, late(e.q)
}

// entries are those that are durable and not over, oldest first.
func (u *Queue) entries() []*entry {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []*entry
	for _, e := range u.live {
		if e.recorded {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int {
		if c := a.q.AskedAt.Compare(b.q.AskedAt); c != 0 {
			return c
		}
		return strings.Compare(string(a.q.ID), string(b.q.ID))
	})
	return all
}

// end ends e for a reason that is nobody's, unless it was answered meanwhile and is not due.
func (u *Queue) end(e *entry, reason string) {
	e.turn.Lock()
	defer e.turn.Unlock()
	if due, _ := u.due(e); passed(u.c.Now(), due) {
		u.conclude(e, Event{Reason: reason})
	}
}

// Withdraw ends every question that want holds for: a denial of nobody, which is not remembered.
func (u *Queue) Withdraw(reason string, want func(bailey.Question) bool) {
	for _, e := range u.entries() {
		if want(e.q) {
			e.turn.Lock()
			u.conclude(e, Event{Reason: reason})
			e.turn.Unlock()
		}
	}
}

// conclude ends e, which is denied with it, and records why. One that cannot be recorded has ended all the same: it
// grants nothing any more. It reports whether it was this call that ended it. The caller has the turn.
func (u *Queue) conclude(e *entry, event Event) bool {
	if u.isOver(e) {
		return false
	}
	event.ID, event.Receipt, event.Settled, event.At = e.q.ID, e.q.Receipt, true, u.c.Now()
	err := u.c.Note(context.Background(), AnswerEvent, event)
	defer u.c.Tell(settled, clone(e.q), event.Reason) // with no lock held: it has ended, recorded or not
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		e.err = &bailey.Error{
			Kind:    bailey.Unavailable,
			Message: fmt.Sprintf("the denial of question %s (%s) could not be recorded", e.q.ID, event.Reason),
			Hint:    "see that the ledger can be written",
			Err:     err,
		}
		u.c.Log.Error("an answer is not in the ledger", "question", e.q.ID, "receipt", e.q.Receipt, "err", err)
	}
	if event.Name != "" {
		maps.DeleteFunc(u.denied, func(_ string, d Denial) bool { return event.At.Sub(d.At) >= DenialTTL })
		u.denied[e.q.Alike] = Denial{Question: e.q.ID, Reason: event.Reason, At: event.At}
	}
	u.drop(e, event.Reason)
	return true
}

func (u *Queue) isOver(e *entry) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return e.done
}

// nudge lets Run look again; when it has not yet looked since the last nudge, one is enough.
func (u *Queue) nudge() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

func late(q bailey.Question) string { return "nobody answered by " + stamp(q.Expires) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// End withdraws what only this session could come back to.
func (u *Queue) End(s bailey.SessionID) {
	if s != "" {
		u.Withdraw("withdrawn: its session ended", func(q bailey.Question) bool { return q.Session == s })
	}
}

// left says of a caller who waits no longer that the question does not end with that.
func left(id bailey.ApprovalID, cause error) error {
	e := &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("the call waits no longer for the answer to %s", id), Err: cause,
		Hint: cmp.Or(bailey.HintOf(cause), "the same call takes up what is granted meanwhile")}
	if cause == nil || cause == context.Canceled || cause == context.DeadlineExceeded { // which are no words for a person
		e.Message += ": the caller went away"
	}
	return e
}

// Seen is a question that is not over, as a person sees it.
type Seen struct {
	bailey.Question
	Waits   int       // callers that stay for the answer
	Answers []Event   // that were taken
	Granted time.Time // since when it waits for its call to come back; zero: it is not granted
	RunBy   time.Time // of one that is granted
	Lapsed  string    // why what was granted counts no longer
}

// Open lists the questions a person could be shown, oldest first.
func (u *Queue) Open() []Seen {
	var list []Seen
	for _, e := range u.entries() {
		s := Seen{Question: clone(e.q), Answers: u.takenOf(e), RunBy: u.runsUntil(e)}
		u.mu.Lock()
		s.Waits, s.Granted = e.waits, e.granted
		over := e.done
		u.mu.Unlock()
		if !s.Granted.IsZero() {
			s.Lapsed = u.lapsed(e)
		}
		if !over {
			list = append(list, s)
		}
	}
	return list
}
