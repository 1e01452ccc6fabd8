package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"bailey/internal/wire"

	"bailey"
)

// The ledger's kinds of entry for what programs are. There is no other record of it.
const (
	PinEvent   = "tool.pin"   // a digest that later calls are compared with; its data is a [Pin]
	RepinEvent = "tool.repin" // an operator took changed programs as they are; its data is a [Repin]
)

// Pin is a program as a call ran it: the first time, or, of one that root alone can write, since it changed.
type Pin struct {
	bailey.Program
	Command string `json:"command,omitempty"` // of the tool itself: what the manifest calls it
}

// Repin is what an operator accepted.
type Repin struct {
	Capability bailey.CapabilityID `json:"capability"`
	Programs   []Pin               `json:"programs"`
	Operator   wire.Operator       `json:"operator,omitempty"`
	Person     string              `json:"person,omitempty"`
}

// Pins stands before a runner and says of each program whether it is what it was: the first use is trusted, every
// later one compared. Root's own may change, which is recorded. What others could write stays changed, and policy
// sees that, until an operator takes it as it is. It is safe for concurrent use.
type Pins struct {
	runner bailey.Runner
	*pinned
}

// pinned is what all Pins of a gateway know together: a program is the same one whatever runs it.
type pinned struct {
	note func(ctx context.Context, kind string, data any) error

	mu    sync.Mutex // one record at a time; guards what follows
	known Digests
}

// Digests are what programs are compared with. The zero Digests knows none.
type Digests struct {
	Programs map[string]string `json:"programs,omitempty"` // by path
	Commands map[string]string `json:"commands,omitempty"` // of the tools that commands led to
}

// Keep takes pins in, as the ledger's events have them.
func (d *Digests) Keep(pins ...Pin) {
	if d.Programs == nil {
		d.Programs = map[string]string{}
	}
	if d.Commands == nil {
		d.Commands = map[string]string{}
	}
	for _, pin := range pins {
		d.Programs[pin.Path] = pin.SHA256
		if pin.Command != "" {
			d.Commands[pin.Command] = pin.SHA256
		}
	}
}

// NewPins knows what the ledger holds. note writes one event durably.
func NewPins(runner bailey.Runner, known Digests, note func(context.Context, string, any) error) *Pins {
	known.Programs, known.Commands = maps.Clone(known.Programs), maps.Clone(known.Commands)
	return &Pins{runner, &pinned{note: note, known: known}}
}

// Beside are the same pins before another runner.
func (p *Pins) Beside(runner bailey.Runner) *Pins { return &Pins{runner, p.pinned} }

// Plan has the runner plan and says in the cage what its programs were.
func (p *Pins) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	run, err := p.runner.Plan(ctx, job)
	if err != nil {
		return nil, err
	}
	cage := run.Cage()
	p.mu.Lock()
	defer p.mu.Unlock()
	cage.Programs = p.compare(job.Command, cage.Programs)
	return &pinnedRun{Run: run, pins: p, command: job.Command, cage: cage}, nil
}

// EndSession passes on what the runner may want to know.
func (p *Pins) EndSession(ctx context.Context, id bailey.SessionID) error {
	if s, ok := p.runner.(bailey.SessionRunner); ok {
		return s.EndSession(ctx, id)
	}
	return nil
}

// compare fills in what programs were; p.mu is held. One that others could write and that turns up in a known
// command counts as a change of that command: else a file put before the pinned one on the search path would be
// trusted at its first use.
func (p *Pins) compare(command string, programs []bailey.Program) []bailey.Program {
	programs = slices.Clone(programs)
	for i := range programs {
		now := &programs[i]
		was, known := p.known.Programs[now.Path]
		if !known && now.Copied {
			was = p.known.Commands[command]
		}
		if now.Was = ""; was != now.SHA256 {
			now.Was = was
		}
	}
	return programs
}

// record makes durable what a run that is about to start shows for the first time. What others could write and
// changed is not recorded: it runs by a grant, and the next call asks again.
func (p *Pins) record(ctx context.Context, command string, planned []bailey.Program) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, pin := range pinsOf(command, p.compare(command, planned)) {
		now := pin.Program
		switch {
		case now.Copied && now.Was != planned[i].Was:
			return &bailey.Error{Kind: bailey.Conflict, Message: now.Path + " was run as another program meanwhile", Hint: "call again"}
		case now.Copied && now.Was != "":
			continue
		case p.known.Programs[now.Path] == now.SHA256 && (i > 0 || p.known.Commands[command] == now.SHA256):
			continue
		}
		if err := p.note(ctx, PinEvent, pin); err != nil {
			return &bailey.Error{Kind: bailey.Unavailable, Message: "the digest of " + now.Path + " was not recorded, so it was not run",
				Hint: bailey.HintOf(err), Err: err}
		}
		p.known.Keep(pin)
	}
	return nil
}

// Changes are the programs of a job that others than root can write and that are not what they were.
func (p *Pins) Changes(ctx context.Context, job bailey.Job) ([]Pin, error) {
	run, err := p.Plan(ctx, job)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	pins := pinsOf(job.Command, run.Cage().Programs)
	return slices.DeleteFunc(pins, func(c Pin) bool { return !c.Copied || c.Was == "" }), nil
}

// pinsOf are a cage's programs; the first is the tool that its command leads to.
func pinsOf(command string, programs []bailey.Program) []Pin {
	pins := make([]Pin, len(programs))
	for i, program := range programs {
		if pins[i].Program = program; i == 0 {
			pins[i].Command = command
		}
	}
	return pins
}

// Repin makes the changes that an operator was shown what later calls are compared with, durably. Other changes
// by now are a Conflict.
func (p *Pins) Repin(ctx context.Context, job bailey.Job, r Repin) error {
	now, err := p.Changes(ctx, job)
	if err != nil {
		return err
	}
	if !slices.Equal(now, r.Programs) || len(now) == 0 {
		return &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("the programs of %s are not what was shown", r.Capability),
			Hint: "look at them again: bailey pack repin " + string(r.Capability)}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.note(ctx, RepinEvent, r); err != nil {
		return err
	}
	p.known.Keep(r.Programs...)
	return nil
}

// pinnedRun is a run whose cage knows what its programs were.
type pinnedRun struct {
	bailey.Run
	pins    *Pins
	command string
	cage    bailey.Cage
}

func (r *pinnedRun) Cage() bailey.Cage { return r.cage }

func (r *pinnedRun) Warm() []bailey.WarmStep {
	if w, ok := r.Run.(bailey.WarmRun); ok {
		return w.Warm()
	}
	return nil
}

func (r *pinnedRun) CPU() time.Duration {
	if m, ok := r.Run.(bailey.MeteredRun); ok {
		return m.CPU()
	}
	return 0
}

// Start records what is new before anything runs.
func (r *pinnedRun) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	if err := r.pins.record(ctx, r.command, r.cage.Programs); err != nil {
		return bailey.Exit{Code: bailey.NeverRan}, err
	}
	return r.Run.Start(ctx, lent, s)
}
