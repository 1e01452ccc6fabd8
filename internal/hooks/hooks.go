// Package hooks asks other people's programs at events (package hook has the protocol): in a chain, each in a cage, each
// started anew. What a hook may see and reach is little unless hooks.json says more, and hooks.json counts as it was applied.
package hooks

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/hook"
)

// Status says what holds a hook; "" is one that was not started.
type Status string

const (
	FullyEnforced       Status = "FullyEnforced"       // every layer
	PartiallyEnforced   Status = "PartiallyEnforced"   // a lesser cage, or one that lacks parts
	NotEnforced         Status = "NotEnforced"         // it ran without a cage although it should have had one: never of this version
	PlatformUnsupported Status = "PlatformUnsupported" // the platform has no cage, so it was not started
	Disabled            Status = "Disabled"            // hooks.json says sandbox: false
)

// Config is what a Dispatcher needs.
type Config struct {
	// Applied are the hooks in force. It is asked at each event.
	Applied func() hook.Config
	// Cages runs hooks; Bare runs those that hooks.json takes out of the cage. Nil Cages is a platform that has none, nil
	// Bare refuses these.
	Cages, Bare bailey.Runner
	// Plan and Open make a network for hooks that name hosts. Nil refuses these.
	Plan func(endpoints []bailey.Endpoint) (*bailey.Network, error)
	Open func(n *bailey.Network) (bailey.Way, error)
	// Environ is where the values of the variables come from that a hook may have, NAME=value. Nil: there are none.
	Environ func() []string
	// Private are paths that no hook sees for being near: homes, workspaces, what is masked. A program whose folder is one
	// of them, or holds one, is refused. Nil: there are none.
	Private func() []string
	// Tell is told of each hook that was asked. Nil: nobody is.
	Tell func(ctx context.Context, a Asked)
}

// Asked is one hook that was asked, for spans, receipts and whoever looks.
type Asked struct {
	Event   hook.Name        `json:"event"`
	Session bailey.SessionID `json:"session"`
	Hook    int              `json:"hook"`    // its place in hooks.json, from 1
	Program string           `json:"program"` // argv[0] as hooks.json has it
	Status  Status           `json:"status"`
	Effect  string           `json:"effect"` // as [hook.Effect] says it
	Reason  string           `json:"reason,omitempty"`
	Hint    string           `json:"hint,omitempty"`
	Message string           `json:"message,omitempty"` // of the hook's, for the person
	Exit    int              `json:"exitCode"`
	Millis  int64            `json:"ms"`
	Cage    *bailey.Cage     `json:"cage,omitempty"`
	Warning []Warning        `json:"warnings,omitempty"` // those that nobody was told yet in this session
}

// Warning is what a person should know of a hook once.
type Warning struct {
	Kind string `json:"kind"` // hook.sandbox, hook.buffer, hook.network, hook.failed
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
}

// Dispatcher asks hooks. It is safe for concurrent use.
type Dispatcher struct {
	Config

	mu   sync.Mutex
	told map[bailey.SessionID]map[warned]bool // guarded by mu
}

// New starts nothing.
func New(c Config) *Dispatcher { return &Dispatcher{Config: c} }

// Ask asks the chain of an event. The outcome is that of the whole chain: its Event goes on where it is not blocked. When ctx
// ends so does the chain, and the event does not go on.
func (d *Dispatcher) Ask(ctx context.Context, e hook.Event) (hook.Outcome, []Asked) {
	whole := hook.Outcome{Effect: hook.Kept, Event: e}
	var all []Asked
	for i, h := range d.Applied().Hooks {
		if !h.Matches(whole.Event) {
			continue
		}
		o, a := d.one(ctx, whole.Event, h)
		a.Hook = i + 1
		a.Warning = d.untold(a.Session, a.Hook, a.Warning)
		if d.Tell != nil {
			d.Tell(ctx, a)
		}
		all = append(all, a)
		if whole = join(whole, o); whole.Effect == hook.Blocked {
			break
		}
	}
	return whole, all
}

// join is what a chain comes to after one hook more. What one of them changed stays changed when another fails.
func join(whole, o hook.Outcome) hook.Outcome {
	o.Message = strings.Trim(whole.Message+"\n"+o.Message, "\n")
	if rank := [...]int{hook.Kept: 0, hook.Failed: 1, hook.Changed: 2, hook.Blocked: 3}; rank[o.Effect] < rank[whole.Effect] {
		o.Effect, o.Reason, o.Hint = whole.Effect, whole.Reason, whole.Hint
	}
	return o
}

// one asks one hook.
func (d *Dispatcher) one(ctx context.Context, e hook.Event, h hook.Hook) (hook.Outcome, Asked) {
	a := Asked{Event: e.Name(), Session: e.In().ID, Program: h.Argv[0]}
	begin := time.Now()
	ran := d.run(ctx, e, h, &a)
	o := hook.Interpret(e, ran, h.OnFailure)
	if ctx.Err() != nil { // whoever asked is gone: nothing may go on in their name
		o = hook.Outcome{Reason: "the hook was asked when the call ended", Hint: "call again"}
	}
	if rest, ok := strings.CutPrefix(o.Reason, "the hook "); ok {
		o.Reason = "hook " + h.Argv[0] + " " + rest
	}
	if fell(ran) && !h.Unsandboxed && len(h.Network) == 0 {
		o.Hint = strings.TrimPrefix(o.Hint+"; if it wants a host: "+cureNetwork, "; ")
	}
	if o.Effect == hook.Failed {
		a.Warning = append(a.Warning, Warning{"hook.failed", o.Reason, o.Hint})
	}
	a.Effect, a.Reason, a.Hint, a.Message, a.Exit = o.Effect.String(), o.Reason, o.Hint, o.Message, ran.Exit
	a.Millis = time.Since(begin).Milliseconds()
	return o, a
}

// fell tells whether a hook ran and ended by itself with what is no answer.
func fell(r hook.Ran) bool { return r.Err == nil && !r.TimedOut && r.Exit != 0 && r.Exit != 2 }

// run starts a hook and waits until nothing of it lives.
func (d *Dispatcher) run(ctx context.Context, e hook.Event, h hook.Hook, a *Asked) (ran hook.Ran) {
	ran.Exit = bailey.NeverRan
	frame, err := hook.Encode(e)
	if err != nil {
		return hook.Ran{Exit: ran.Exit, Err: err}
	}
	r, lent, err := d.plan(ctx, e, h, a)
	if err != nil {
		return hook.Ran{Exit: ran.Exit, Err: err}
	}
	defer r.Close()
	var stdout, stderr hook.Output
	exit, err := r.Start(ctx, lent, bailey.Streams{Stdin: bytes.NewReader(frame), Stdout: &stdout, Stderr: &stderr})
	ran.Exit, ran.TimedOut, ran.Err = exit.Code, exit.TimedOut, err
	ran.Stdout, ran.Truncated = stdout.Kept()
	var flooded bool
	ran.Stderr, flooded = stderr.Kept()
	if exit.Over != "" {
		ran.Stderr = append(ran.Stderr, "\n"+exit.Over...)
	}
	a.Warning = append(a.Warning, flood(ran.Truncated, flooded)...)
	a.Warning = append(a.Warning, offline(h, ran.Stderr, lent.Way)...)
	return ran
}
