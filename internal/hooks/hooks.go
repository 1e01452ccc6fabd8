// Package hooks asks other people's programs at events (package hook has the protocol): in a chain, each in a cage, each
// started anew. What a hook may see and reach is little unless hooks.json says more, and hooks.json counts as it was applied.
package hooks

import (
	"context"

	"bailey"
	"bailey/hook"
)

// Status says what holds a hook.
type Status string

const (
	FullyEnforced       Status = "FullyEnforced"       // every layer
	PartiallyEnforced   Status = "PartiallyEnforced"   // a lesser cage, or one that lacks parts
	NotEnforced         Status = "NotEnforced"         // it ran without a cage although it should have had one: never of this version
	PlatformUnsupported Status = "PlatformUnsupported" // the platform has no cage
	Disabled            Status = "Disabled"            // hooks.json says sandbox: false
)

// Config is what a Dispatcher needs.
type Config struct {
	// Applied are the hooks in force. It is asked at each event.
	Applied func() hook.Config
	// Cages runs hooks; Bare runs those that hooks.json takes out of the cage. Nil Bare refuses these.
	Cages, Bare bailey.Runner
	// Plan and Open make a network for hooks that name hosts. Nil refuses these.
	Plan func(endpoints []bailey.Endpoint) (*bailey.Network, error)
	Open func(n *bailey.Network) (bailey.Way, error)
	// Environ is where the values of the variables come from that a hook may have, NAME=value.
	Environ func() []string
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
	Kind string `json:"kind"` // hook.sandbox, hook.buffer, hook.failed
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
}

// Dispatcher asks hooks. It is safe for concurrent use.
type Dispatcher struct {
	Config
}

// New starts nothing.
func New(c Config) *Dispatcher { return &Dispatcher{Config: c} }

// Ask asks the chain of an event. The outcome is that of the whole chain: its Event goes on where it is not blocked.
func (d *Dispatcher) Ask(ctx context.Context, e hook.Event) (hook.Outcome, []Asked) {
	return hook.Outcome{Effect: hook.Kept, Event: e}, nil
}

// Forget clears which warnings a session was told; with "" those of all, as a reload does.
func (d *Dispatcher) Forget(s bailey.SessionID) {}
