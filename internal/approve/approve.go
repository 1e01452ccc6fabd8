// Package approve keeps the questions that wait for a person, and the answers.
//
// A question is recorded before it is visible. It stays open for the shortest time that its rules allow, whether or not
// its caller waits. It ends once: enough approvers grant it, a person denies it, or it expires. A grant is valid for
// the same call, whenever that is made again ([bailey.Question.Subject]), and for one run of it: the use is recorded
// before the call continues. Until then the grant can be revoked.
//
// If a person denies a call, it stays denied for a while, however often it is made. A standing grant allows calls that
// its rules would ask about, until it expires or is revoked.
//
// Every change that permits something is recorded as an event before it takes effect, and [State] is the result of the
// events: a queue made from the state of another continues from there. Events are "question", whose data is the
// [bailey.Question], "answer", whose data is an [Event], "use" ([Use]), "grant" ([Standing]) and "grant.revoke"
// ([Revoked]).
//
// An answer applies to the question's text, which package approvaltext specifies, or to the text of a grant.
package approve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/approvaltext"
)

const (
	// DefaultOpen limits the open questions if Config sets no limit.
	DefaultOpen = 1000
	// MaxStay limits the callers that wait for an answer at the same time: each holds its call's plan and two
	// descriptors, about 0.1 MB. A call beyond the limit becomes pending at once.
	MaxStay = 256
	// maxSession limits the open questions of one session, or of an agent's calls without a session, so that one caller
	// cannot block the others.
	maxSession = 100
	// maxTexts limits the texts of all open questions, in bytes: a gateway that starts reads them from one segment.
	maxTexts = 8 << 20
	// DenialTTL is how long a person's denial answers the same call.
	DenialTTL = 10 * time.Minute
)

// Config says where events go and how long questions stay open. Without Note every question is refused, without Prove
// every granting answer.
type Config struct {
	// Note writes one event. It must return nil only if the event is durable. Several goroutines call it.
	Note func(ctx context.Context, kind string, data any) error
	// Prove returns the author of an answer according to the current approvers, or why the answer does not count.
	// Recorded answers are proven again whenever they matter, so that a former approver has no part in a later run.
	Prove func(text []byte, g Given) (Approver, error)
	// Tell is called when a question is open ("question.open"), after that is durable, and when it has ended
	// ("question.settled", with the reason). Questions that were open before are told again when Run begins. Tell must
	// not block. It may be nil.
	Tell func(kind string, q bailey.Question, reason string)
	// Key is the key for salts. With it a commitment can be checked; nil means a random key.
	Key     []byte
	Past    State            // open questions at the last entry of the ledger
	TTL     time.Duration    // zero is [bailey.ApprovalTTL]; a rule can only shorten it
	Now     func() time.Time // nil is time.Now
	MaxOpen int              // zero is [DefaultOpen]
	Log     *slog.Logger     // nil discards
}

// Queue contains the questions that have not ended. It is safe for concurrent use.
type Queue struct {
	c    Config
	wake chan struct{} // one slot; Run checks the time again

	again []bailey.ApprovalID // open questions that New took over; Run tells of those that are still open

	mu     sync.Mutex // guards the following fields, and the fields of entries that say so
	live   map[bailey.ApprovalID]*entry
	about  map[string]*entry // by subject
	texts  int               // bytes of all their texts
	denied map[string]Denial
	grants map[bailey.GrantID]Standing
	drafts map[bailey.GrantID]draft
	// answered are the answers that hold for a session, by rule. They exist only in memory, as sessions do.
	answered map[sessionRule]sessionAnswer
	counters map[string]uint32 // of passkeys, by fingerprint, at their last answers
	stays    int               // waiting callers
	ended    chan struct{}     // closed by Close
}

// entry is one question.
type entry struct {
	q    bailey.Question
	turn sync.Mutex    // held while an answer or a use is recorded, one at a time; must be locked before Queue.mu
	over chan struct{} // closed when it is answered or has ended

	// guarded by Queue.mu
	recorded bool                    // the question is durable and may be shown and answered
	waits    int                     // waiting callers
	heard    map[string]bailey.Heard // by [bailey.Heard.Of], at most maxHeard
	taken    []Event
	granted  time.Time // zero: not yet
	used     bool
	done     bool   // it is in no map any more
	reason   string // why it ended without a grant
	err      error  // why its end could not be recorded
}

// New returns a Queue. It starts nothing: [Queue.Run] lets questions expire that have no waiting caller.
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
		c.Log = slog.New(slog.DiscardHandler)
	}
	u := &Queue{
		c: c, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		live: map[bailey.ApprovalID]*entry{}, about: map[string]*entry{}, denied: map[string]Denial{},
		grants: map[bailey.GrantID]Standing{}, drafts: map[bailey.GrantID]draft{},
		answered: map[sessionRule]sessionAnswer{}, counters: map[string]uint32{},
	}
	u.restoreState(c.Past)
	u.again = slices.Collect(maps.Keys(u.live))
	return u
}

// Ask answers q if a recent denial or a grant applies to it. Otherwise it records q and waits up to q.Patience for an
// answer. It sets AskedAt, Expires and the fields that depend on them. The caller must set q.ID; the answer names the
// question that was answered. If the answer grants, the grant is used up by this call. If not, it denies with a reason,
// or is Pending: the patience is over, and the same call may be made again. An error refuses the call: an event could
// not be recorded, too many questions are open, or ctx ended, which leaves the question open.
func (u *Queue) Ask(ctx context.Context, q bailey.Question) (bailey.Answer, error) {
	q = cloneQuestion(q)
	q.Subject, q.Alike = approvaltext.Subject(q, u.c.Key)
	for {
		if err := ctx.Err(); err != nil {
			return bailey.Answer{}, waitEndedError(q.ID, context.Cause(ctx))
		}
		if a, ok := u.recentDenial(q); ok {
			return a, nil
		}
		if a, ok, err := u.useStanding(ctx, q); ok || err != nil {
			return a, err
		}
		if a, ok, err := u.useSessionAnswer(ctx, q); ok || err != nil {
			return a, err
		}
		e, err := u.findOrOpen(ctx, q)
		if err != nil {
			return bailey.Answer{}, err
		}
		u.keepVerdict(e, q.Heard)
		u.answerFromGrants(ctx, e)
		a, again, err := u.waitForAnswer(ctx, e, q)
		if !again {
			return a, err
		}
	}
}

// hasPassed reports whether t is over by either clock: one stops while the machine sleeps, and the other can be set
// back.
func hasPassed(now, t time.Time) bool { return !now.Before(t) || !now.Round(0).Before(t.Round(0)) }

// recentDenial returns a person's recent denial of the same call.
func (u *Queue) recentDenial(q bailey.Question) (bailey.Answer, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	d, ok := u.denied[q.Alike]
	until := d.At.Add(DenialTTL)
	if !ok || !u.c.Now().Before(until) {
		delete(u.denied, q.Alike)
		return bailey.Answer{}, false
	}
	return bailey.Answer{Question: d.Question,
		Reason: fmt.Sprintf("%s; the same call gets this answer until %s", d.Reason, formatTime(until))}, true
}

// findOrOpen returns the open question about the same call, or opens q.
func (u *Queue) findOrOpen(ctx context.Context, q bailey.Question) (*entry, error) {
	e, fresh, err := u.reserveEntry(q)
	switch {
	case err != nil:
		return nil, err
	case fresh:
		return e, u.recordQuestion(ctx, e)
	}
	e.turn.Lock() // until it is recorded
	defer e.turn.Unlock()
	return e, nil
}

// reserveEntry reserves a place for q, unless a question about the same call is open. It returns a new entry with its
// turn locked. record makes the entry durable and unlocks it, so that nothing uses it before.
func (u *Queue) reserveEntry(q bailey.Question) (e *entry, fresh bool, err error) {
	now := u.c.Now()
	ttl := u.questionTTL(q.Rules)
	q.AskedAt, q.Expires, q.Until = now, now.Add(ttl), now.Add(2*ttl)
	q.Nonce = newNonce()
	q = cloneQuestion(q) // the caller's q keeps its values, because it may have to ask again
	if q, err = u.renderQuestion(q); err != nil {
		return nil, false, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case q.ID == "":
		return nil, false, bailey.Internal.New("cannot answer a question without an ID", "")
	case u.c.Note == nil:
		return nil, false, bailey.Unavailable.New("cannot ask a question: there is no ledger to record it",
			"start the gateway with a ledger")
	case isClosed(u.ended):
		return nil, false, bailey.Unavailable.New("the gateway is stopping and accepts no questions",
			"ask again after it has started")
	}
	if e := u.about[q.Subject]; e != nil {
		return e, false, nil
	}
	switch {
	case u.live[q.ID] != nil:
		return nil, false, bailey.Conflict.Errorf("", "question %s is already open", q.ID)
	case len(u.live) >= u.c.MaxOpen || u.texts+len(q.Text) > maxTexts:
		return nil, false, bailey.Unavailable.Errorf("wait until some have been answered or have expired",
			"%d questions are open, the maximum", len(u.live))
	case u.ofSession(q) >= min(maxSession, u.c.MaxOpen):
		return nil, false, bailey.Unavailable.Errorf("wait until some have been answered or have expired",
			"this session has %d open questions, the maximum for one session", maxSession)
	}
	e = &entry{q: q, over: make(chan struct{})}
	e.turn.Lock()
	u.addEntry(e)
	return e, true, nil
}

// ofSession counts the open questions of the session that asks. The caller must hold u.mu.
func (u *Queue) ofSession(q bailey.Question) (n int) {
	for _, e := range u.live {
		if e.q.Session == q.Session && e.q.Principal.Agent == q.Principal.Agent {
			n++
		}
	}
	return n
}

// addEntry adds e to the maps. The caller must hold u.mu.
func (u *Queue) addEntry(e *entry) {
	u.live[e.q.ID], u.about[e.q.Subject] = e, e
	u.texts += len(e.q.Text)
}

// removeEntry removes e from the maps and releases waiting callers. The caller must hold u.mu.
func (u *Queue) removeEntry(e *entry, reason string) {
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

// maxQuestion limits a question as JSON, in bytes: an entry of the ledger has at most 64 KiB.
const maxQuestion = 56 << 10

// renderQuestion returns q with its text. If no ledger entry could hold the question, it is refused, because a question
// must be recorded completely. The error does not contain the length: that would tell the agent how much a preview
// showed before a person allowed it. The values are removed: only the text is shown and kept.
func (u *Queue) renderQuestion(q bailey.Question) (bailey.Question, error) {
	q.Text = approvaltext.Text(q, u.c.Key)
	q.Digest = approvaltext.Digest(q.Text)
	b, err := json.Marshal(q)
	if err != nil {
		return q, err
	}
	if len(b) > maxQuestion {
		return q, bailey.Invalid.New("cannot ask a person: the question is longer than a ledger entry can be",
			"pass less in the arguments of one call")
	}
	clearValues(&q)
	return q, nil
}

func clearValues(q *bailey.Question) {
	q.Heard = bailey.Heard{}
	for _, list := range [][]bailey.Shown{q.Argv, q.Preview.Argv} {
		for i := range list {
			list[i].Value = bailey.Secret{}
		}
	}
	for i := range q.Inputs {
		q.Inputs[i].Value = bailey.Secret{}
	}
	for i := range q.Bound {
		q.Bound[i].Path.Value = bailey.Secret{}
	}
	for i := range q.Files {
		q.Files[i].SHA256 = bailey.Secret{}
	}
	for _, s := range []*bailey.Shown{&q.Dir, &q.Binary, &q.Plan, &q.Preview.Output} {
		s.Value = bailey.Secret{}
	}
}

func cloneQuestion(q bailey.Question) bailey.Question {
	q.Argv, q.Inputs, q.Rules, q.EnvNames = slices.Clone(q.Argv), slices.Clone(q.Inputs), slices.Clone(q.Rules), slices.Clone(q.EnvNames)
	q.Bound = slices.Clone(q.Bound)
	q.Files, q.Leases, q.Egress, q.Preview.Argv = slices.Clone(q.Files), slices.Clone(q.Leases), slices.Clone(q.Egress), slices.Clone(q.Preview.Argv)
	return q
}

// newNonce ensures that two otherwise equal questions have different texts.
func newNonce() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// questionTTL returns the shortest time that the rules and the configuration allow.
func (u *Queue) questionTTL(rules []bailey.Rule) time.Duration {
	if ttl := bailey.Combine(rules).TTL; ttl > 0 {
		return min(ttl, u.c.TTL)
	}
	return u.c.TTL
}

// recordQuestion writes the question. The write is not cancelled if the caller leaves.
func (u *Queue) recordQuestion(ctx context.Context, e *entry) error {
	defer e.turn.Unlock()
	err := u.c.Note(context.WithoutCancel(ctx), QuestionEvent, e.q)
	if err == nil {
		defer u.c.Tell(Opened, cloneQuestion(e.q), "") // after mu is unlocked
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		u.removeEntry(e, "cannot record it")
		return bailey.Unavailable.Wrapf(err, "make sure that the ledger can be written, then call again",
			"cannot record question %s, so no person was asked", e.q.ID)
	}
	e.recorded = true
	u.wakeRun()
	return nil
}

// maxHeard limits the calls with hook verdicts for one question: hooks may turn several calls into the same one. Beyond
// the limit, hooks are asked again. The inputs that they returned are in the question's text, whose length is limited.
const maxHeard = 4

// keepVerdict keeps the verdict of the hooks on a call while e is open.
func (u *Queue) keepVerdict(e *entry, h bailey.Heard) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if h.Of == "" || len(e.heard) >= maxHeard {
		return
	}
	if e.heard == nil {
		e.heard = map[string]bailey.Heard{}
	}
	e.heard[h.Of] = h
}

// Parked returns the verdict of the hooks on a pending call, by [bailey.Heard.Of]. After a restart there are no
// verdicts: a hook may have put data into an input that must not be written to a disk.
func (u *Queue) Parked(of string) (bailey.Heard, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, e := range u.live {
		if h, ok := e.heard[of]; ok {
			return h, true
		}
	}
	return bailey.Heard{}, false
}
