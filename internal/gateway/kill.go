package gateway

import (
	"context"
	"fmt"
	"sync"
	"time"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/wire"
)

// The ledger's kinds of entry for the kill switch. Their data is a [Killed] and a [Resumed].
const (
	KillEvent   = "kill"
	ResumeEvent = "resume"
)

// Killed says that everything was stopped. The zero Killed is a gateway that carries calls.
type Killed struct {
	At     time.Time `json:"at,omitzero"`
	Reason string    `json:"reason,omitempty"`
	Person string    `json:"person,omitempty"`
	Calls  int       `json:"calls"` // that were under way and were ended
}

// On reports whether the switch is thrown.
func (k Killed) On() bool { return !k.At.IsZero() }

// Resumed says that calls are carried again.
type Resumed struct {
	Operator wire.Operator `json:"operator,omitempty"`
	Person   string        `json:"person,omitempty"`
}

// KillSwitch stands before the spine and beside its policy: once thrown it ends every call under way, and each later one
// is refused where policy decides, with its receipt. It stays thrown, over a restart too, until an operator resumes.
type KillSwitch struct {
	Gate     Gate                // is behind it
	Withdraw func(reason string) // ends what people are asked, and takes back what they granted. Nil: nobody is asked
	note     func(ctx context.Context, kind string, data any) error

	noting sync.Mutex // held while an event is noted: the ledger's last word is the switch's. Never taken with mu held
	mu     sync.Mutex // guards what follows
	killed Killed
	thrown int // how often
	calls  map[*context.CancelCauseFunc]struct{}
}

// NewKillSwitch returns the switch as the ledger last had it.
func NewKillSwitch(last Killed, note func(context.Context, string, any) error) *KillSwitch {
	return &KillSwitch{note: note, killed: last, calls: map[*context.CancelCauseFunc]struct{}{}}
}

// cutOff is why a call is cut off by the switch. It is a cancellation.
func (k Killed) cutOff() error {
	words := "the kill switch was thrown"
	if k.Reason != "" {
		words += " (" + k.Reason + ")"
	}
	return &bailey.Error{Kind: bailey.Denied, Message: words, Hint: stoppedHint, Err: ending("everything is stopped")}
}

const stoppedHint = "tell the person you work for; `bailey resume` is theirs to say"

// Do carries a call. One that comes while the switch is thrown goes its way too, to where policy refuses it.
func (k *KillSwitch) Do(ctx context.Context, call bailey.Call) bailey.Result {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k.mu.Lock()
	k.calls[&cancel] = struct{}{}
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		delete(k.calls, &cancel)
		k.mu.Unlock()
	}()
	return k.Gate.Do(ctx, call)
}

// EndSession is the gate's.
func (k *KillSwitch) EndSession(ctx context.Context, id bailey.SessionID) error {
	return k.Gate.EndSession(ctx, id)
}

// State returns whether the switch is thrown, and by whom.
func (k *KillSwitch) State() Killed {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.killed
}

// Kill stops everything now. It stops before it is recorded: a ledger that takes nothing must not keep calls going.
// Thrown twice it ends what has come since, and the first reason stands.
func (k *KillSwitch) Kill(ctx context.Context, reason, person string) (Killed, error) {
	k.mu.Lock()
	now := Killed{At: time.Now().UTC(), Reason: reason, Person: person, Calls: len(k.calls)}
	if k.thrown++; !k.killed.On() {
		k.killed = now
	}
	cut := k.killed.cutOff()
	for cancel := range k.calls {
		(*cancel)(cut)
	}
	k.mu.Unlock()
	k.noting.Lock()
	defer k.noting.Unlock()
	err := k.note(ctx, KillEvent, now)
	if k.Withdraw != nil { // an event for each that is open, so it comes behind
		k.Withdraw("withdrawn: " + cut.Error())
	}
	if err != nil {
		return now, &bailey.Error{Kind: bailey.Unavailable, Message: "everything is stopped, but the ledger does not say so: a gateway that starts anew would carry calls", Err: err,
			Hint: "mend the ledger's disk, then bailey kill once more"}
	}
	return now, nil
}

// Resume carries calls again, once that is recorded.
func (k *KillSwitch) Resume(ctx context.Context, by Resumed) (was Killed, err error) {
	k.noting.Lock()
	defer k.noting.Unlock()
	k.mu.Lock()
	was = k.killed
	thrown := k.thrown
	k.mu.Unlock()
	if !was.On() {
		return was, &bailey.Error{Kind: bailey.Conflict, Message: "nothing is stopped", Hint: "bailey status"}
	}
	if err := k.note(ctx, ResumeEvent, by); err != nil {
		return was, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.thrown == thrown { // else it was thrown again meanwhile
		k.killed = Killed{}
	}
	return was, nil
}

// Before returns a policy that denies while the switch is thrown, and else decides as inner does. Since it is asked last
// of all before a call runs, none that was under way slips through between two looks. Its denial names no policy: no rule
// says so.
func (k *KillSwitch) Before(inner gate.Policy) gate.Policy { return stoppable{k, inner} }

type stoppable struct {
	k     *KillSwitch
	inner gate.Policy
}

func (s stoppable) Decide(r bailey.Request) bailey.Decision {
	d := s.inner.Decide(r)
	killed := s.k.State()
	if !killed.On() {
		return d
	}
	words := "everything is stopped by the kill switch, since " + killed.At.Format(time.RFC3339)
	if killed.Reason != "" {
		words += fmt.Sprintf(" (%s)", killed.Reason)
	}
	return bailey.Decision{Reason: words, Hint: stoppedHint}
}
