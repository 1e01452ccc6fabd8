package approve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/canon"
)

// DefaultOpen is how many questions may be open at once when Config says nothing.
const DefaultOpen = 1000

// Config says where events go and how long questions stay. Without Note every question is refused, without Prove every
// answer that grants.
type Config struct {
	// Note writes one event durably and returns nil only then. It is called from several goroutines.
	Note func(ctx context.Context, kind string, data any) error
	// Prove says whose answer it is, by the approvers of now, or why it does not count. Those that were taken are
	// proven again whenever another comes, so that whoever is no approver any more has no part in a quorum.
	Prove func(text []byte, g Given) (Approver, error)
	// Tell learns that a question is open ("question.open") or settled ("question.settled", with the reason), once that is
	// durable. It must not wait; nil is nobody.
	Tell func(kind string, q bailey.Question, reason string)
	// Key is what salts are made of. A commitment can be checked by who has it; nil is one that nobody has.
	Key     []byte
	TTL     time.Duration    // zero is [bailey.ApprovalTTL]; a rule can only shorten it
	Now     func() time.Time // nil is time.Now
	MaxOpen int              // zero is [DefaultOpen]
	Log     *slog.Logger     // nil discards
}

// Event is the data of an "answer". One without a name is nobody's: it says why the question ended.
type Event struct {
	ID        bailey.ApprovalID `json:"id"`
	Receipt   bailey.ReceiptID  `json:"receipt"`
	Granted   bool              `json:"granted"` // by this answer; a quorum may want more
	Reason    string            `json:"reason"`
	Digest    string            `json:"digest,omitempty"` // of the question's text
	Name      string            `json:"name,omitempty"`
	Level     bailey.Level      `json:"level,omitempty"`
	Key       string            `json:"key,omitempty"` // fingerprint
	Roles     []string          `json:"roles,omitempty"`
	Signature string            `json:"signature,omitempty"` // over the question's text
	Operator  string            `json:"operator,omitempty"`  // by what right an unsigned one came
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
	given    []Given
	taken    []Event
	turn     sync.Mutex // one answer is taken at a time; guards given and taken, held before Queue.mu
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
	if c.Key == nil {
		c.Key = make([]byte, 32)
		rand.Read(c.Key) // never fails (crypto/rand)
	}
	if c.Tell == nil {
		c.Tell = func(string, bailey.Question, string) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return &Queue{c: c, wake: make(chan struct{}, 1), open: map[bailey.ApprovalID]*entry{}}
}

// Ask records q and, when q.Patience is set, stays until it is answered. AskedAt and Expires are set here;
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
	if q.Patience <= 0 {
		return bailey.Answer{Pending: true, Expires: e.q.Expires, Reason: "waits for a person until " + stamp(e.q.Expires)}, nil
	}
	return u.wait(ctx, e)
}

// admit reserves a place for q. Nobody sees the entry until record has made it durable.
func (u *Queue) admit(q bailey.Question) (*entry, error) {
	q = clone(q)
	q.AskedAt = u.c.Now()
	q.Expires = q.AskedAt.Add(u.ttl(q.Rules))
	q.Nonce = nonce()
	var err error
	if q.Text, q.Digest, err = whole(q, u.c.Key); err != nil {
		return nil, err
	}
	forget(&q)
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

// maxQuestion bounds a question as JSON, in bytes: an entry of the ledger has 64 KiB in all.
const maxQuestion = 56 << 10

// whole is a question's text with its digest. One that no entry of the ledger could hold is refused: what is not
// recorded whole cannot be asked.
func whole(q bailey.Question, key []byte) (text, digest string, err error) {
	q.Text = canon.Text(q, key)
	q.Digest = canon.Digest(q.Text)
	b, err := json.Marshal(q)
	if err == nil && len(b) > maxQuestion {
		err = &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("the question would have %d bytes, and the ledger holds %d: nobody can be asked", len(b), maxQuestion),
			Hint: "pass less in the arguments of one call"}
	}
	return q.Text, q.Digest, err
}

// forget lets go of the values: what is shown and kept is the text.
func forget(q *bailey.Question) {
	for i := range q.Argv {
		q.Argv[i].Value = bailey.Secret{}
	}
	for i := range q.Inputs {
		q.Inputs[i].Value = bailey.Secret{}
	}
	q.Dir.Value, q.Binary.Value, q.Plan.Value = bailey.Secret{}, bailey.Secret{}, bailey.Secret{}
}

func clone(q bailey.Question) bailey.Question {
	q.Argv, q.Inputs, q.Rules, q.EnvNames = slices.Clone(q.Argv), slices.Clone(q.Inputs), slices.Clone(q.Rules), slices.Clone(q.EnvNames)
	return q
}

// nonce keeps two questions that are else alike from having one text.
func nonce() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
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
	u.c.Tell("question.open", clone(e.q), "")
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
			list = append(list, clone(e.q))
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
