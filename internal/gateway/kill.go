package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// Kinds of ledger entries for the kill switch. Their data are a [Killed] and a [Resumed].
const (
	KillEvent   = "kill"
	ResumeEvent = "resume"
	OrdersEvent = "kill.orders" // of the control plane; its data are [apitype.Orders]
)

// Resumed records that calls are carried again.
type Resumed struct {
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// KillSwitch wraps the gate and its policy. When it is switched on, it ends every running call. Each later call is
// refused at the policy stage and gets a receipt. It stays on, even after a restart, until an operator resumes.
type KillSwitch struct {
	Gate                         // carries the calls
	Withdraw func(reason string) // ends pending approvals and revokes granted ones; nil: there are none
	// WithdrawAgent does so for an agent.
	WithdrawAgent func(agent, reason string)
	note          func(ctx context.Context, kind string, data any) error

	// noting is held while an event is recorded, so that the ledger's last entry matches the switch. It must not be
	// taken while mu is held.
	noting sync.Mutex
	mu     sync.Mutex // guards the fields below
	killed apitype.Killed
	thrown int // how often it was switched on
	orders apitype.Orders
	calls  map[*context.CancelCauseFunc]string // the agents of the running calls
}

// NewKillSwitch returns the switch in the state that the ledger recorded last.
func NewKillSwitch(last apitype.Killed, note func(context.Context, string, any) error) *KillSwitch {
	return &KillSwitch{note: note, killed: last, calls: map[*context.CancelCauseFunc]string{}}
}

// cutOff returns the cause with which the switch cancels a call.
func cutOff(k apitype.Killed) error {
	words := "the kill switch was activated"
	if k.Reason != "" {
		words += " (" + k.Reason + ")"
	}
	return bailey.Denied.Wrap(endReason("everything is stopped"), words, stoppedHint)
}

const stoppedHint = "tell the person you work for; only they may run `bailey resume`"

// Do carries a call. If the switch is on, the call still goes on to the policy stage, which refuses it.
func (k *KillSwitch) Do(ctx context.Context, call bailey.Call) bailey.Result {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k.mu.Lock()
	k.calls[&cancel] = call.Principal.Agent
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		delete(k.calls, &cancel)
		k.mu.Unlock()
	}()
	return k.Gate.Do(ctx, call)
}

// State returns the current state of the switch.
func (k *KillSwitch) State() apitype.Killed {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.killed
}

// Kill stops everything immediately. It cancels calls before it records the event, because calls must stop even if the
// ledger fails. If the switch is already on, Kill ends the calls that came since, and the first reason stays.
func (k *KillSwitch) Kill(ctx context.Context, reason, person string) (apitype.Killed, error) {
	k.mu.Lock()
	now := apitype.Killed{At: time.Now().UTC(), Reason: reason, Person: person, Calls: len(k.calls)}
	if k.thrown++; !k.killed.On() {
		k.killed = now
	}
	cut := cutOff(k.killed)
	for cancel := range k.calls {
		(*cancel)(cut)
	}
	k.mu.Unlock()
	k.noting.Lock()
	defer k.noting.Unlock()
	err := k.note(ctx, KillEvent, now)
	if k.Withdraw != nil { // it records an event per approval, so it comes last
		k.Withdraw("withdrawn: " + cut.Error())
	}
	if err != nil {
		return now, bailey.Unavailable.Wrap(err, "everything is stopped, but this could not be recorded: after a restart the gateway would accept calls",
			"repair the ledger's disk, then run bailey kill again")
	}
	return now, nil
}

// Resume lets calls run again, after that is recorded.
func (k *KillSwitch) Resume(ctx context.Context, by Resumed) (was apitype.Killed, err error) {
	k.noting.Lock()
	defer k.noting.Unlock()
	k.mu.Lock()
	was = k.killed
	thrown, ordered := k.thrown, len(k.orders.Kills)
	k.mu.Unlock()
	if !was.On() && ordered == 0 {
		return was, bailey.Conflict.New("nothing is stopped", "bailey status")
	}
	if err := k.note(ctx, ResumeEvent, by); err != nil {
		return was, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.thrown == thrown { // otherwise it was switched on again meanwhile
		k.killed, k.orders.Kills = apitype.Killed{}, nil
	}
	return was, nil
}

// Before returns a policy that denies every call while the switch is on, and otherwise decides as inner does. It is the
// last check before a call runs, so no call in progress can slip through. The denial names no policy, because no rule
// made it.
func (k *KillSwitch) Before(inner gate.Policy) gate.Policy { return killSwitchPolicy{k, inner} }

type killSwitchPolicy struct {
	k     *KillSwitch
	inner gate.Policy
}

func (s killSwitchPolicy) Decide(r bailey.Request) bailey.Decision {
	d := s.inner.Decide(r)
	if o := s.k.Orders().For(r.Principal.Agent); o != nil {
		return bailey.Decision{Reason: orderText(*o), Hint: stoppedHint}
	}
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

// Restore takes over the orders that the ledger recorded last.
func (k *KillSwitch) Restore(o apitype.Orders) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.orders = o
}

// Orders returns the orders of the control plane that are in force. They must not be modified.
func (k *KillSwitch) Orders() apitype.Orders {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.orders
}

// Follow replaces the orders of the control plane, unless those in force are as new, and ends the calls that they stop.
// As Kill does, it cancels the calls before it records the event. Orders that permit more are recorded first.
func (k *KillSwitch) Follow(ctx context.Context, o apitype.Orders) (apitype.Orders, error) {
	k.noting.Lock()
	defer k.noting.Unlock()
	k.mu.Lock()
	old := k.orders
	if o.Host == old.Host && o.Revision <= old.Revision {
		k.mu.Unlock()
		return old, nil
	}
	if o.Host == old.Host && slices.Equal(o.Kills, old.Kills) {
		k.orders.Revision = o.Revision // a control plane must not fill the ledger with what is in force
		k.mu.Unlock()
		return o, nil
	}
	both := apitype.Orders{Revision: old.Revision, Host: old.Host, Kills: slices.Clone(o.Kills)}
	for _, stop := range old.Kills {
		if !slices.ContainsFunc(o.Kills, func(n apitype.Order) bool { return n.ID == stop.ID }) {
			both.Kills = append(both.Kills, stop)
		}
	}
	k.orders = both
	for cancel, agent := range k.calls {
		if stop := o.For(agent); stop != nil {
			(*cancel)(bailey.Denied.Wrap(endReason("it is stopped"), orderText(*stop), stoppedHint))
		}
	}
	k.mu.Unlock()
	err := k.note(ctx, OrdersEvent, o)
	k.withdrawOrdered(o)
	if err != nil {
		return both, bailey.Unavailable.Wrap(err, "the orders are followed, but this could not be recorded: after a restart the gateway would accept calls",
			"repair the ledger's disk; the control plane sends them again")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.orders = o // Resume waits for noting, so nothing has changed them meanwhile
	return o, nil
}

// withdrawOrdered ends the questions of what is stopped.
func (k *KillSwitch) withdrawOrdered(o apitype.Orders) {
	if all := o.All(); all != nil && k.Withdraw != nil {
		k.Withdraw("withdrawn: " + orderText(*all))
		return
	}
	for _, stop := range o.Kills {
		if stop.Agent != "" && k.WithdrawAgent != nil {
			k.WithdrawAgent(stop.Agent, "withdrawn: "+orderText(stop))
		}
	}
}

func orderText(o apitype.Order) string {
	words := "everything is stopped"
	if o.Agent != "" {
		words = "the agent " + o.Agent + " is stopped"
	}
	words += " by the control plane, since " + o.At.Format(time.RFC3339)
	if o.Reason != "" {
		words += " (" + o.Reason + ")"
	}
	return words
}
