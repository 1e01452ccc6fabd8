// Package approve keeps the questions that wait for a person.
//
// A question is recorded before anybody can see it, stays open until the shortest time that its rules
// allow, and ends in exactly one recorded answer: nobody answered, the caller withdrew, or the gateway
// ended. Each of them denies. There is no way here to grant: an answer that grants needs proof of who
// gave it, and until such a proof can be checked none is taken.
//
// Events are "question", whose data is the [bailey.Question], and "answer", whose data is an [Event]. If
// an answer cannot be recorded, the question's own expiry in the ledger still says that nothing was granted.
package approve

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
)

// DefaultOpen is how many questions may be open at once when Config says nothing.
const DefaultOpen = 1000

// Config says where events go and how long questions stay. Without Note every question is refused.
type Config struct {
	// Note writes one event durably and returns nil only then. It is called from several goroutines.
	Note    func(ctx context.Context, kind string, data any) error
	TTL     time.Duration    // zero is [bailey.ApprovalTTL]; a rule can only shorten it
	Now     func() time.Time // nil is time.Now
	MaxOpen int              // zero is [DefaultOpen]
	Log     *slog.Logger     // nil discards
}

// Event is the data of an "answer".
type Event struct {
	ID      bailey.ApprovalID `json:"id"`
	Receipt bailey.ReceiptID  `json:"receipt"`
	Granted bool              `json:"granted"`
	Reason  string            `json:"reason"`
}

// Queue holds the open questions. It is safe for concurrent use.
type Queue struct {
	c    Config
	wake chan struct{} // one slot: Run looks at the clock again

	mu    sync.Mutex // guards what follows and the fields of every entry
	open  map[bailey.ApprovalID]*entry
	ended bool
}

// entry is one question. It is in Queue.open until exactly one goroutine takes it out to settle it;
// answer and err are written by that goroutine before it closes done.
type entry struct {
	q        bailey.Question
	recorded bool // the question is durable: it may be shown and settled
	done     chan struct{}
	answer   bailey.Answer
	err      error
}

// New returns a Queue. It starts nothing: [Queue.Run] expires the questions nobody waits for.
func New(c Config) *Queue {
	if c.TTL <= 0 {
		c.TTL = bailey.ApprovalTTL
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.MaxOpen <= 0 {
		c.MaxOpen = DefaultOpen
	}
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return &Queue{c: c, wake: make(chan struct{}, 1), open: map[bailey.ApprovalID]*entry{}}
}

// Ask records q and, when q.Wait is set, stays until it is answered. AskedAt and Expires are set here;
// q.ID is the caller's, who shows it to the agent. The answer denies with a reason, or is Pending when
// nobody waits. An error refuses: the question could not be recorded, too many are open, or ctx ended,
// which withdraws the question and wraps ctx.Err().
func (u *Queue) Ask(ctx context.Context, q bailey.Question) (bailey.Answer, error) {
	if err := ctx.Err(); err != nil {
		return bailey.Answer{}, withdrawn(q.ID, context.Cause(ctx))
	}
	e, err := u.admit(q)
	if err != nil {
		return bailey.Answer{}, err
	}
	if err := u.record(ctx, e); err != nil {
		return bailey.Answer{}, err
	}
	if !q.Wait {
		return bailey.Answer{Pending: true, Reason: "waits for a person until " + stamp(e.q.Expires)}, nil
	}
	return u.wait(ctx, e)
}

// admit reserves a place for q. Nobody sees the entry until record has made it durable.
func (u *Queue) admit(q bailey.Question) (*entry, error) {
	q.Argv, q.Rules = slices.Clone(q.Argv), slices.Clone(q.Rules)
	q.AskedAt = u.c.Now()
	q.Expires = q.AskedAt.Add(u.ttl(q.Rules))
	e := &entry{q: q, done: make(chan struct{})}

	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case q.ID == "":
		return nil, &bailey.Error{Kind: bailey.Internal, Message: "a question without an id cannot be answered"}
	case u.c.Note == nil:
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "no ledger is there to record a question", Hint: "start the gateway with a ledger"}
	case u.ended:
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "the gateway is ending and takes no questions", Hint: "ask again when it has started anew"}
	case u.open[q.ID] != nil:
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("question %s is open already", q.ID)}
	case len(u.open) >= u.c.MaxOpen:
		return nil, &bailey.Error{
			Kind:    bailey.Unavailable,
			Message: fmt.Sprintf("%d questions are open, which is as many as may be", len(u.open)),
			Hint:    "wait until some have been answered or have expired",
		}
	}
	u.open[q.ID] = e
	return e, nil
}

// ttl is the shortest time that the rules and the configuration leave.
func (u *Queue) ttl(rules []bailey.Rule) time.Duration {
	ttl := u.c.TTL
	for _, r := range rules {
		if r.TTL > 0 {
			ttl = min(ttl, r.TTL)
		}
	}
	return ttl
}

// record writes the question. The write is not given up half way when the caller leaves.
func (u *Queue) record(ctx context.Context, e *entry) error {
	err := u.c.Note(context.WithoutCancel(ctx), "question", e.q)
	u.mu.Lock()
	if err != nil {
		delete(u.open, e.q.ID)
	}
	e.recorded = err == nil
	ended := u.ended
	u.mu.Unlock()
	if err != nil {
		return &bailey.Error{
			Kind:    bailey.Unavailable,
			Message: fmt.Sprintf("question %s could not be recorded, so nobody was asked", e.q.ID),
			Hint:    "see that the ledger can be written, then call again",
			Err:     err,
		}
	}
	if ended { // Close passed by while the question was being written
		u.settle(e, gone)
	}
	u.nudge()
	return nil
}

// wait stays until somebody settles e, its time is up, or the caller leaves.
func (u *Queue) wait(ctx context.Context, e *entry) (bailey.Answer, error) {
	timer := time.NewTimer(e.q.Expires.Sub(u.c.Now()))
	defer timer.Stop()
	left := false
	select {
	case <-e.done:
	case <-timer.C:
		u.settle(e, late(e.q))
	case <-ctx.Done():
		left = u.settle(e, "withdrawn: "+because(context.Cause(ctx)))
	}
	<-e.done
	if left {
		return bailey.Answer{}, withdrawn(e.q.ID, context.Cause(ctx))
	}
	return e.answer, e.err
}

// Open lists the questions a person could be shown, oldest first.
func (u *Queue) Open() []bailey.Question {
	u.mu.Lock()
	defer u.mu.Unlock()
	var list []bailey.Question
	for _, e := range u.open {
		if e.recorded {
			q := e.q
			q.Argv, q.Rules = slices.Clone(q.Argv), slices.Clone(q.Rules)
			list = append(list, q)
		}
	}
	slices.SortFunc(list, func(a, b bailey.Question) int {
		if c := a.AskedAt.Compare(b.AskedAt); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return list
}
