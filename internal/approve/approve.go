package approve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/canon"
)

const (
	// DefaultOpen is how many questions may be open at once when Config says nothing.
	DefaultOpen = 1000
	// MaxStay is how many callers stay for an answer at once: each holds its call's plan and two descriptors, some 0.1 MB.
	// Whoever comes beyond is parked at once.
	MaxStay = 256
	// maxSession is how many of them may be one session's, or those of an agent's calls that have none: nobody shall ask so
	// much that others cannot.
	maxSession = 100
	// maxTexts bounds the texts of all that are open, in bytes: a gateway that starts reads them from one segment.
	maxTexts = 8 << 20
	// DenialTTL is how long the same call is answered by what a person said of it.
	DenialTTL = 10 * time.Minute
)

// Config says where events go and how long questions stay. Without Note every question is refused, without Prove every
// answer that grants.
type Config struct {
	// Note writes one event durably and returns nil only then. It is called from several goroutines.
	Note func(ctx context.Context, kind string, data any) error
	// Prove says whose answer it is, by the approvers of now, or why it does not count. Those that were taken are
	// proven again whenever it matters, so that whoever is no approver any more has no part in what runs.
	Prove func(text []byte, g Given) (Approver, error)
	// Tell learns that a question is open ("question.open"), and that it was answered or is none any more
	// ("question.settled", with the reason), once that is durable. What was open before is told again when Run begins. It
	// must not wait; nil is nobody.
	Tell func(kind string, q bailey.Question, reason string)
	// Key is what salts are made of. A commitment can be checked by who has it; nil is one that nobody has.
	Key     []byte
	Past    State            // what was open when the ledger was last written to
	TTL     time.Duration    // zero is [bailey.ApprovalTTL]; a rule can only shorten it
	Now     func() time.Time // nil is time.Now
	MaxOpen int              // zero is [DefaultOpen]
	Log     *slog.Logger     // nil discards
}

// Queue holds the questions that are not over. It is safe for concurrent use.
type Queue struct {
	c    Config
	wake chan struct{} // one slot: Run looks at the clock again

	again []bailey.ApprovalID // that New went on with; Run tells of those that are still open

	mu     sync.Mutex // guards what follows and the fields of every entry that say so
	live   map[bailey.ApprovalID]*entry
	about  map[string]*entry // by subject
	texts  int               // bytes of theirs
	denied map[string]Denial
	grants map[bailey.GrantID]Standing
	drafts map[bailey.GrantID]draft
	stays  int           // callers that stay
	ended  chan struct{} // closed by Close
}

// entry is one question.
type entry struct {
	q    bailey.Question
	turn sync.Mutex    // one answer or use is taken at a time, and recorded; held before Queue.mu
	over chan struct{} // closed when it is answered, or is none any more

	// guarded by Queue.mu
	recorded bool                    // the question is durable: it may be shown and answered
	waits    int                     // callers that stay
	heard    map[string]bailey.Heard // by what hooks were asked about, at most maxHeard
	taken    []Event
	granted  time.Time // zero: not yet
	used     bool
	done     bool   // it is in no map any more
	reason   string // of one that is over and was not granted
	err      error  // why its end could not be recorded
}

// New returns a Queue. It starts nothing: [Queue.Run] expires what nobody waits for.
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
	u := &Queue{
		c: c, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		live: map[bailey.ApprovalID]*entry{}, about: map[string]*entry{}, denied: map[string]Denial{},
		grants: map[bailey.GrantID]Standing{}, drafts: map[bailey.GrantID]draft{},
	}
	u.recall(c.Past)
	u.again = slices.Collect(maps.Keys(u.live))
	return u
}

// Ask answers q by what was said of the same call before, or asks: it records q and stays for q.Patience until it is
// answered. AskedAt, Expires and what follows from them are set here; q.ID is the caller's, who is told in the answer
// which question it was. An answer that grants has been used up by this call. One that does not denies with a reason, or
// is Pending: the caller's patience is at its end, and the same call may come again. An error refuses: something could
// not be recorded, too many are open, or ctx ended, which leaves the question as it is.
func (u *Queue) Ask(ctx context.Context, q bailey.Question) (bailey.Answer, error) {
	q = clone(q)
	q.Subject, q.Alike = canon.Subject(q, u.c.Key)
	for {
		if err := ctx.Err(); err != nil {
			return bailey.Answer{}, left(q.ID, context.Cause(ctx))
		}
		if a, ok := u.remembered(q); ok {
			return a, nil
		}
		if a, ok, err := u.standing(ctx, q); ok || err != nil {
			return a, err
		}
		e, err := u.enter(ctx, q)
		if err != nil {
			return bailey.Answer{}, err
		}
		u.hear(e, q.Heard)
		u.meanwhile(ctx, e)
		a, again, err := u.stay(ctx, e, q)
		if !again {
			return a, err
		}
	}
}

// passed tells whether t is over by either clock: one stands still while the machine sleeps, and the other can be set back.
func passed(now, t time.Time) bool { return !now.Before(t) || !now.Round(0).Before(t.Round(0)) }

// remembered is what a person said of the same call a short while ago.
func (u *Queue) remembered(q bailey.Question) (bailey.Answer, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	d, ok := u.denied[q.Alike]
	until := d.At.Add(DenialTTL)
	if !ok || !u.c.Now().Before(until) {
		delete(u.denied, q.Alike)
		return bailey.Answer{}, false
	}
	return bailey.Answer{Question: d.Question, Reason: fmt.Sprintf("%s; the same call is answered so until %s", d.Reason, stamp(until))}, true
}

// enter returns the question about the same call that is not over, or opens q.
func (u *Queue) enter(ctx context.Context, q bailey.Question) (*entry, error) {
	e, fresh, err := u.admit(q)
	switch {
	case err != nil:
		return nil, err
	case fresh:
		return e, u.record(ctx, e)
	}
	e.turn.Lock() // whoever opened it is writing it down
	defer e.turn.Unlock()
	return e, nil
}

// admit reserves a place for q, unless one is there about the same call. Nobody sees the entry until record has made it
// durable, which has the turn until then.
func (u *Queue) admit(q bailey.Question) (e *entry, fresh bool, err error) {
	now := u.c.Now()
	ttl := u.ttl(q.Rules)
	q.AskedAt, q.Expires, q.Until = now, now.Add(ttl), now.Add(2*ttl)
	q.Nonce = nonce()
	q = clone(q) // the caller's keeps its values: it may have to ask once more
	if q, err = u.written(q); err != nil {
		return nil, false, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case q.ID == "":
		return nil, false, &bailey.Error{Kind: bailey.Internal, Message: "a question without an id cannot be answered"}
	case u.c.Note == nil:
		return nil, false, &bailey.Error{Kind: bailey.Unavailable, Message: "no ledger is there to record a question", Hint: "start the gateway with a ledger"}
	case isClosed(u.ended):
		return nil, false, &bailey.Error{Kind: bailey.Unavailable, Message: "the gateway is ending and takes no questions", Hint: "ask again when it has started anew"}
	}
	if e := u.about[q.Subject]; e != nil {
		return e, false, nil
	}
	switch {
	case u.live[q.ID] != nil:
		return nil, false, &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("question %s is open already", q.ID)}
	case len(u.live) >= u.c.MaxOpen || u.texts+len(q.Text) > maxTexts:
		return nil, false, &bailey.Error{
			Kind:    bailey.Unavailable,
			Message: fmt.Sprintf("%d questions are open, which is as many as may be", len(u.live)),
			Hint:    "wait until some have been answered or have expired",
		}
	case u.ofSession(q) >= min(maxSession, u.c.MaxOpen):
		return nil, false, &bailey.Error{
			Kind:    bailey.Unavailable,
			Message: fmt.Sprintf("this session has asked %d questions that are open, which is as many as it may", maxSession),
			Hint:    "wait until some have been answered or have expired",
		}
	}
	e = &entry{q: q, over: make(chan struct{})}
	e.turn.Lock()
	u.put(e)
	return e, true, nil
}

// ofSession counts what is open of the session that asks. The caller has the lock.
func (u *Queue) ofSession(q bailey.Question) (n int) {
	for _, e := range u.live {
		if e.q.Session == q.Session && e.q.Principal.Agent == q.Principal.Agent {
			n++
		}
	}
	return n
}

// put lets e into the maps. The caller has the lock.
func (u *Queue) put(e *entry) {
	u.live[e.q.ID], u.about[e.q.Subject] = e, e
	u.texts += len(e.q.Text)
}

// drop takes e out of the maps and lets go who waits. The caller has the lock.
func (u *Queue) drop(e *entry, reason string) {
	if e.done {
		return
	}
	delete(u.live, e.q.ID)
	if u.about[e.q.Subject] == e {
		delete(u.about, e.q.Subject)
	}
	u.texts -= len(e.q.Text)
	e.done, e.reason = true, reason
	if !isClosed(e.over) {
		close(e.over)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// maxQuestion bounds a question as JSON, in bytes: an entry of the ledger has 64 KiB in all.
const maxQuestion = 56 << 10

// written is q with its text. One that no entry of the ledger could hold is refused: what is not recorded whole cannot be
// asked. How long it would be is not said: the agent would learn how much a preview showed before anybody let it. The values
// are let go of: what is shown and kept is the text.
func (u *Queue) written(q bailey.Question) (bailey.Question, error) {
	q.Text = canon.Text(q, u.c.Key)
	q.Digest = canon.Digest(q.Text)
	b, err := json.Marshal(q)
	if err != nil {
		return q, err
	}
	if len(b) > maxQuestion {
		return q, &bailey.Error{Kind: bailey.Invalid, Message: "the question would be longer than the ledger holds: nobody can be asked",
			Hint: "pass less in the arguments of one call"}
	}
	forget(&q)
	return q, nil
}

func forget(q *bailey.Question) {
	q.Heard = bailey.Heard{}
	for _, list := range [][]bailey.Shown{q.Argv, q.Preview.Argv} {
		for i := range list {
			list[i].Value = bailey.Secret{}
		}
	}
	for i := range q.Inputs {
		q.Inputs[i].Value = bailey.Secret{}
	}
	for i := range q.Files {
		q.Files[i].SHA256 = bailey.Secret{}
	}
	for _, s := range []*bailey.Shown{&q.Dir, &q.Binary, &q.Plan, &q.Preview.Output} {
		s.Value = bailey.Secret{}
	}
}

func clone(q bailey.Question) bailey.Question {
	q.Argv, q.Inputs, q.Rules, q.EnvNames = slices.Clone(q.Argv), slices.Clone(q.Inputs), slices.Clone(q.Rules), slices.Clone(q.EnvNames)
	q.Files, q.Leases, q.Egress, q.Preview.Argv = slices.Clone(q.Files), slices.Clone(q.Leases), slices.Clone(q.Egress), slices.Clone(q.Preview.Argv)
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
	if ttl := bailey.Combine(rules).TTL; ttl > 0 {
		return min(ttl, u.c.TTL)
	}
	return u.c.TTL
}

// record writes the question. The write is not given up half way when the caller leaves.
func (u *Queue) record(ctx context.Context, e *entry) error {
	defer e.turn.Unlock()
	err := u.c.Note(context.WithoutCancel(ctx), QuestionEvent, e.q)
	if err == nil {
		defer u.c.Tell(opened, clone(e.q), "") // with no lock held
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		u.drop(e, "it could not be recorded")
		return &bailey.Error{
			Kind:    bailey.Unavailable,
			Message: fmt.Sprintf("question %s could not be recorded, so nobody was asked", e.q.ID),
			Hint:    "see that the ledger can be written, then call again",
			Err:     err,
		}
	}
	e.recorded = true
	u.nudge()
	return nil
}
