// Package hooks asks third-party programs at events (package hook specifies the protocol): in a chain, each in a cage,
// each in a new process. A hook sees and reaches little unless hooks.json permits more. hooks.json counts only in its
// applied form.
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

// Status says how a hook is isolated; "" if nothing could be planned for it.
type Status string

const (
	FullyEnforced       Status = "FullyEnforced"       // every layer
	PartiallyEnforced   Status = "PartiallyEnforced"   // a lesser cage, or one without some layers
	NotEnforced         Status = "NotEnforced"         // it should have had a cage but ran without one; never in this version
	PlatformUnsupported Status = "PlatformUnsupported" // the platform has no cage, so it was not started
	Disabled            Status = "Disabled"            // hooks.json says sandbox: false
)

// Config is the configuration of a Dispatcher.
type Config struct {
	// Applied returns the hooks in force, at each event. Nil: no hooks.
	Applied func() hook.Config
	// Cages runs hooks, Bare those that hooks.json exempts from the cage. If Cages is nil, the platform has no cage. If
	// Bare is nil, exempted hooks are refused.
	Cages, Bare bailey.Runner
	// Plan and Open make a network for hooks that name hosts. If they are nil, such hooks are refused.
	Plan func(endpoints []bailey.Endpoint) (*bailey.Network, error)
	Open func(n *bailey.Network) (bailey.Way, error)
	// Environ returns the variables from which a hook may get some, NAME=value. Nil: no variables.
	Environ func() []string
	// Private returns paths that no hook may see because its program is near them, such as homes, workspaces and masked
	// paths. A program whose folder is or contains one of them is refused. Nil: no paths.
	Private func() []string
	// Workspaces returns the directories that agents write to. A file in one cannot be a hook, because the agent that
	// it should control could change it. Nil: no workspaces.
	Workspaces func() []string
	// Tell is called for each hook that was asked. It may be nil.
	Tell func(ctx context.Context, a Asked)
}

// Asked describes one hook that was asked, for spans, receipts and display.
type Asked struct {
	Event   hook.Name        `json:"event"`
	Session bailey.SessionID `json:"session"`
	Hook    int              `json:"hook"`    // position in hooks.json, from 1
	Program string           `json:"program"` // argv[0] as in hooks.json
	Status  Status           `json:"status"`
	Effect  string           `json:"effect"` // text of a [hook.Effect]
	Reason  string           `json:"reason,omitempty"`
	Hint    string           `json:"hint,omitempty"`
	Message string           `json:"message,omitempty"` // from the hook, for the person
	Exit    int              `json:"exitCode"`
	Millis  int64            `json:"ms"`
	Cage    *bailey.Cage     `json:"cage,omitempty"`
	Warning []Warning        `json:"warnings,omitempty"` // warnings that are new in this session
}

// Warning is a notice about a hook that a person should see once.
type Warning struct {
	Kind string `json:"kind"` // hook.sandbox, hook.buffer, hook.network, hook.failed
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
}

// Dispatcher asks hooks. It is safe for concurrent use.
type Dispatcher struct {
	Config

	mu   sync.Mutex
	told map[bailey.SessionID]map[warningKey]bool // guarded by mu
}

// New returns a Dispatcher. It starts nothing.
func New(c Config) *Dispatcher { return &Dispatcher{Config: c} }

// Ask asks the chain of hooks of an event. The outcome is that of the whole chain: its Event continues unless it is
// blocked. If ctx ends, the chain ends and the event must not continue.
func (d *Dispatcher) Ask(ctx context.Context, e hook.Event) (hook.Outcome, []Asked) {
	whole := hook.Outcome{Effect: hook.Kept, Event: e}
	if d.Applied == nil {
		return whole, nil
	}
	var chain []plannedHook
	for i, h := range d.Applied().Hooks {
		if h.Matches(e) { // a hook cannot change anything that selects the next hook
			chain = append(chain,
				plannedHook{Hook: h,
					asked: Asked{Event: e.Name(), Session: e.In().ID, Hook: i + 1, Program: h.Argv[0]}})
		}
	}
	var all []Asked
	next := d.planNext(ctx, e, chain)
	for len(chain) > 0 && whole.Effect != hook.Blocked {
		p := <-next
		chain = chain[1:]
		next = d.planNext(ctx, e, chain)
		o, a := d.askHook(ctx, whole.Event, p)
		a.Warning = d.newWarnings(a.Session, a.Hook, a.Warning)
		if d.Tell != nil {
			d.Tell(ctx, a)
		}
		all, whole = append(all, a), joinOutcomes(whole, o)
	}
	if p := <-next; p.run != nil {
		p.run.Close()
	}
	return whole, all
}

// plannedHook is a hook that is about to be asked.
type plannedHook struct {
	hook.Hook
	asked Asked
	run   bailey.Run
	lent  bailey.Lent
	err   error
}

// planNext plans the first hook of a chain while the one before it runs. This is possible because a plan does not depend
// on the content of the event.
func (d *Dispatcher) planNext(ctx context.Context, e hook.Event, chain []plannedHook) <-chan plannedHook {
	c := make(chan plannedHook, 1)
	if len(chain) == 0 {
		close(c)
		return c
	}
	p := chain[0]
	go func() {
		p.run, p.lent, p.err = d.planHook(ctx, e, p.Hook, &p.asked)
		c <- p
	}()
	return c
}

// joinOutcomes adds the outcome of one more hook to that of the chain. If one hook has changed the event and another fails, the
// change remains.
func joinOutcomes(whole, o hook.Outcome) hook.Outcome {
	o.Message = strings.Trim(whole.Message+"\n"+o.Message, "\n")
	if rank := [...]int{hook.Kept: 0, hook.Failed: 1, hook.Changed: 2,
		hook.Blocked: 3}; rank[o.Effect] < rank[whole.Effect] {
		o.Effect, o.Reason, o.Hint = whole.Effect, whole.Reason, whole.Hint
	}
	return o
}

// askHook asks one hook.
func (d *Dispatcher) askHook(ctx context.Context, e hook.Event, p plannedHook) (hook.Outcome, Asked) {
	a, begin := p.asked, time.Now()
	ran := p.runHook(ctx, e, &a)
	o := hook.Interpret(e, ran, p.OnFailure)
	if ctx.Err() != nil { // the caller is gone, so nothing may continue on its behalf
		o = hook.Outcome{Reason: "the hook was asked when the call ended", Hint: "call again"}
	}
	if rest, ok := strings.CutPrefix(o.Reason, "the hook "); ok {
		o.Reason = "hook " + a.Program + " " + rest
	}
	if hasBadExit(ran) && !p.Unsandboxed && len(p.Network) == 0 {
		o.Hint = strings.TrimPrefix(o.Hint+"; if it needs a host: "+cureNetwork, "; ")
	}
	if o.Effect == hook.Failed {
		a.Warning = append(a.Warning, Warning{"hook.failed", o.Reason, o.Hint})
	}
	a.Effect, a.Reason, a.Hint, a.Message, a.Exit = o.Effect.String(), o.Reason, o.Hint, o.Message, ran.Exit
	a.Millis = time.Since(begin).Milliseconds()
	return o, a
}

// hasBadExit reports whether a hook ran and ended by itself with an exit code that is not an answer.
func hasBadExit(r hook.Ran) bool { return r.Err == nil && !r.TimedOut && r.Exit != 0 && r.Exit != 2 }

// runHook starts a hook and waits until all its processes have ended.
func (p plannedHook) runHook(ctx context.Context, e hook.Event, a *Asked) hook.Ran {
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
	exit, err := p.run.Start(ctx, p.lent,
		bailey.Streams{Stdin: bytes.NewReader(frame), Stdout: &stdout, Stderr: &stderr})
	ran := hook.Ran{Exit: exit.Code, TimedOut: exit.TimedOut, Err: err}
	var flooded bool
	ran.Stdout, ran.Truncated = stdout.Kept()
	ran.Stderr, flooded = stderr.Kept()
	if exit.Over != "" {
		ran.Stderr = append(ran.Stderr, "\n"+exit.Over...)
	}
	a.Warning = append(a.Warning, overflowWarnings(ran.Truncated, flooded)...)
	a.Warning = append(a.Warning, networkWarnings(p.Hook, ran.Stderr, p.lent.Way)...)
	return ran
}
