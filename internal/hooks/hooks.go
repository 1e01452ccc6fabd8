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

// Status says what holds a hook; "" is one that nothing could be planned for.
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
	// Applied are the hooks in force. It is asked at each event. Nil: there are none.
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
	// Workspaces are what agents write. A file in one is no hook: who is to be held by it could write it. Nil: there are none.
	Workspaces func() []string
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
	if d.Applied == nil {
		return whole, nil
	}
	var chain []prepared
	for i, h := range d.Applied().Hooks {
		if h.Matches(e) { // nothing that a hook may change is what the next one is chosen by
			chain = append(chain, prepared{Hook: h, asked: Asked{Event: e.Name(), Session: e.In().ID, Hook: i + 1, Program: h.Argv[0]}})
		}
	}
	var all []Asked
	next := d.ahead(ctx, e, chain)
	for len(chain) > 0 && whole.Effect != hook.Blocked {
		p := <-next
		chain = chain[1:]
		next = d.ahead(ctx, e, chain)
		o, a := d.one(ctx, whole.Event, p)
		a.Warning = d.untold(a.Session, a.Hook, a.Warning)
		if d.Tell != nil {
			d.Tell(ctx, a)
		}
		all, whole = append(all, a), join(whole, o)
	}
	if p := <-next; p.run != nil {
		p.run.Close()
	}
	return whole, all
}

// prepared is a hook that is about to be asked.
type prepared struct {
	hook.Hook
	asked Asked
	run   bailey.Run
	lent  bailey.Lent
	err   error
}

// ahead plans the first of a chain while the one before it runs: a plan has nothing of the event in it.
func (d *Dispatcher) ahead(ctx context.Context, e hook.Event, chain []prepared) <-chan prepared {
	c := make(chan prepared, 1)
	if len(chain) == 0 {
		close(c)
		return c
	}
	p := chain[0]
	go func() {
		p.run, p.lent, p.err = d.plan(ctx, e, p.Hook, &p.asked)
		c <- p
	}()
	return c
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
func (d *Dispatcher) one(ctx context.Context, e hook.Event, p prepared) (hook.Outcome, Asked) {
	a, begin := p.asked, time.Now()
	ran := p.ask(ctx, e, &a)
	o := hook.Interpret(e, ran, p.OnFailure)
	if ctx.Err() != nil { // whoever asked is gone: nothing may go on in their name
		o = hook.Outcome{Reason: "the hook was asked when the call ended", Hint: "call again"}
	}
	if rest, ok := strings.CutPrefix(o.Reason, "the hook "); ok {
		o.Reason = "hook " + a.Program + " " + rest
	}
	if fell(ran) && !p.Unsandboxed && len(p.Network) == 0 {
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

// ask starts a hook and waits until nothing of it lives.
func (p prepared) ask(ctx context.Context, e hook.Event, a *Asked) hook.Ran {
	never := hook.Ran{Exit: bailey.NeverRan, Err: p.err}
	if p.err != nil {
		return never
	}
	defer p.run.Close()
	frame, err := hook.Encode(e)
	if err != nil {
		never.Err = err
		return never
	}
	var stdout, stderr hook.Output
	exit, err := p.run.Start(ctx, p.lent, bailey.Streams{Stdin: bytes.NewReader(frame), Stdout: &stdout, Stderr: &stderr})
	ran := hook.Ran{Exit: exit.Code, TimedOut: exit.TimedOut, Err: err}
	var flooded bool
	ran.Stdout, ran.Truncated = stdout.Kept()
	ran.Stderr, flooded = stderr.Kept()
	if exit.Over != "" {
		ran.Stderr = append(ran.Stderr, "\n"+exit.Over...)
	}
	a.Warning = append(a.Warning, flood(ran.Truncated, flooded)...)
	a.Warning = append(a.Warning, offline(p.Hook, ran.Stderr, p.lent.Way)...)
	return ran
}
