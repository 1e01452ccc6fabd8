package approve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"bailey"
)

const gone = "the gateway ended"

// Run expires questions until ctx ends, then closes the queue and returns what [Queue.Close] returns.
// The ledger must outlive it.
func (u *Queue) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return u.Close()
		case <-timer.C:
		case <-u.wake:
		}
		timer.Reset(u.expire())
	}
}

// Close denies and records every open question and refuses those to come. A second call does nothing.
// The error joins what could not be recorded.
func (u *Queue) Close() error {
	u.mu.Lock()
	u.ended = true
	u.mu.Unlock()
	var errs []error
	for _, e := range u.recorded(func(*entry) bool { return true }) {
		if u.settle(e, gone) && e.err != nil {
			errs = append(errs, e.err)
		}
	}
	return errors.Join(errs...)
}

// expire settles what is due and returns how long nothing else will be.
func (u *Queue) expire() time.Duration {
	now := u.c.Now()
	for _, e := range u.recorded(func(e *entry) bool { return !e.q.Expires.After(now) }) {
		u.settle(e, late(e.q))
	}
	now = u.c.Now()
	next := u.c.TTL
	for _, e := range u.recorded(func(*entry) bool { return true }) {
		next = min(next, e.q.Expires.Sub(now))
	}
	return max(next, 0)
}

// recorded returns the open and durable entries for which want holds.
func (u *Queue) recorded(want func(*entry) bool) []*entry {
	u.mu.Lock()
	defer u.mu.Unlock()
	var list []*entry
	for _, e := range u.open {
		if e.recorded && want(e) {
			list = append(list, e)
		}
	}
	return list
}

// settle denies e and records why, unless somebody else has taken it. It reports whether that was this call.
func (u *Queue) settle(e *entry, reason string) bool {
	if !u.take(e) {
		return false
	}
	u.finish(e, bailey.Answer{Reason: reason}, Event{ID: e.q.ID, Receipt: e.q.Receipt, Reason: reason})
	return true
}

// take makes this call the one that ends e.
func (u *Queue) take(e *entry) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	mine := u.open[e.q.ID] == e
	if mine {
		delete(u.open, e.q.ID)
	}
	return mine
}

// finish records the event that ends e, which was taken, and lets who waits go on. What cannot be recorded grants nothing.
func (u *Queue) finish(e *entry, a bailey.Answer, event Event) {
	defer close(e.done)
	e.answer = bailey.Answer{Reason: a.Reason}
	err := u.c.Note(context.Background(), "answer", event)
	if err == nil {
		e.answer = a
		u.c.Tell("question.settled", clone(e.q), a.Reason)
		return
	}
	what := "denial"
	if event.Granted {
		what = "grant"
	}
	e.err = &bailey.Error{
		Kind:    bailey.Unavailable,
		Message: fmt.Sprintf("the %s of question %s (%s) could not be recorded", what, e.q.ID, a.Reason),
		Hint:    "see that the ledger can be written",
		Err:     err,
	}
	u.c.Log.Error("an answer is not in the ledger", "question", e.q.ID, "receipt", e.q.Receipt, "err", err)
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

func withdrawn(id bailey.ApprovalID, err error) error {
	e := &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("question %s was withdrawn", id), Err: err}
	if because(err) == leaves {
		e.Message += ": " + leaves
	}
	return e
}

const leaves = "the caller went away"

// because is why a caller no longer waits. A cause in words is given as it is: the kill switch has one.
func because(cause error) string {
	if cause == nil || cause == context.Canceled || cause == context.DeadlineExceeded {
		return leaves
	}
	return cause.Error()
}
