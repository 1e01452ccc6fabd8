package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// Kinds of ledger entries for the digests of programs. They are the only record of them.
const (
	PinEvent   = "tool.pin"   // digest that later calls are compared with; its data is a [Pin]
	RepinEvent = "tool.repin" // an operator accepted changed programs; its data is a [Repin]
)

// Repin records the changes that an operator accepted.
type Repin struct {
	Capability bailey.CapabilityID `json:"capability"`
	Programs   []apitype.Pin       `json:"programs"`
	Operator   localapi.Operator   `json:"operator,omitempty"`
	Person     string              `json:"person,omitempty"`
}

// Pins wraps a runner and compares each program with its recorded digest. The first use is trusted, each later use is
// compared. A program that only root can write may change, and the change is recorded. If a program that other users
// can write changes, it stays marked as changed, and policy sees that, until an operator accepts it. Pins is safe for
// concurrent use.
type Pins struct {
	bailey.Runner
	*pinState
}

// pinState is the state that all Pins of a gateway share, because a program has the same digest under every runner.
type pinState struct {
	note func(ctx context.Context, kind string, data any) error
	self string // path of the gateway's own program, or ""

	mu    sync.Mutex // one record at a time; guards the fields below
	known Digests
}

// Digests are the recorded SHA-256 digests of programs. The zero Digests is empty.
type Digests struct {
	Programs map[string]string `json:"programs,omitempty"` // by path
	Commands map[string]string `json:"commands,omitempty"` // by command, of the tool that the command resolved to
}

// Keep adds pins from ledger events.
func (d *Digests) Keep(pins ...apitype.Pin) {
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

// NewPins returns Pins with the digests from the ledger. note must write one event durably.
func NewPins(runner bailey.Runner, known Digests, note func(context.Context, string, any) error) *Pins {
	known.Programs, known.Commands = maps.Clone(known.Programs), maps.Clone(known.Commands)
	return &Pins{runner, &pinState{note: note, known: known}}
}

// TrustSelf makes the gateway's own program, with which git asks for signatures, unchanged in every call. The gateway names
// it by its path, and it changes with each installation; who can write it can replace the gateway.
func (p *Pins) TrustSelf(path string) { p.self = path }

// Beside returns a Pins with the same digests for another runner.
func (p *Pins) Beside(runner bailey.Runner) *Pins { return &Pins{runner, p.pinState} }

// Plan calls the runner's Plan and adds the recorded digests of the programs to the cage.
func (p *Pins) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	run, err := p.Runner.Plan(ctx, job)
	if err != nil {
		return nil, err
	}
	cage := run.Cage()
	p.mu.Lock()
	defer p.mu.Unlock()
	cage.Programs = p.markChanges(job.Command, cage.Programs)
	return &pinnedRun{Run: run, pins: p, command: job.Command, cage: cage}, nil
}

// markChanges sets Was to the recorded digest of each changed program. The caller must hold p.mu. If other users can write
// a program that is new in a known command, it counts as a change of that command. Otherwise a file that an attacker
// puts before the pinned one in the search path would be trusted at its first use.
func (p *Pins) markChanges(command string, programs []bailey.Program) []bailey.Program {
	programs = slices.Clone(programs)
	for i := range programs {
		now := &programs[i]
		was, known := p.known.Programs[now.Path]
		if !known && now.Copied {
			was = p.known.Commands[command]
		}
		if now.Was = ""; was != now.SHA256 && (i == 0 || p.self == "" || now.Path != p.self) {
			now.Was = was
		}
	}
	return programs
}

// recordPins makes new digests durable before a run starts. A changed program that other users can write is not recorded:
// it runs because of a grant, and the next call must be granted again.
func (p *Pins) recordPins(ctx context.Context, command string, planned []bailey.Program) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, pin := range pinsOf(command, p.markChanges(command, planned)) {
		now := pin.Program
		switch {
		case now.Copied && now.Was != planned[i].Was:
			return bailey.Conflict.New(now.Path+" was run as another program meanwhile", "call again")
		case now.Copied && now.Was != "":
			continue
		case p.known.Programs[now.Path] == now.SHA256 && (i > 0 || p.known.Commands[command] == now.SHA256):
			continue
		}
		if err := p.note(ctx, PinEvent, pin); err != nil {
			return bailey.Unavailable.Wrap(err, "the digest of "+now.Path+" could not be recorded, so it was not run",
				bailey.HintOf(err))
		}
		p.known.Keep(pin)
	}
	return nil
}

// Changes returns the changed programs of a job that users other than root can write.
func (p *Pins) Changes(ctx context.Context, job bailey.Job) ([]apitype.Pin, error) {
	run, err := p.Plan(ctx, job)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	pins := pinsOf(job.Command, run.Cage().Programs)
	return slices.DeleteFunc(pins, func(c apitype.Pin) bool { return !c.Copied || c.Was == "" }), nil
}

// pinsOf converts the programs of a cage to pins. The first program is the tool that command resolved to.
func pinsOf(command string, programs []bailey.Program) []apitype.Pin {
	pins := make([]apitype.Pin, len(programs))
	for i, program := range programs {
		if pins[i].Program = program; i == 0 {
			pins[i].Command = command
		}
	}
	return pins
}

// Repin durably records the changes that an operator was shown as the new digests. If the changes differ by now, the
// error is a Conflict.
func (p *Pins) Repin(ctx context.Context, job bailey.Job, r Repin) error {
	now, err := p.Changes(ctx, job)
	if err != nil {
		return err
	}
	if !slices.Equal(now, r.Programs) || len(now) == 0 {
		return bailey.Conflict.Errorf("check them again: bailey pack repin "+string(r.Capability),
			"the programs of %s are not the ones shown", r.Capability)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.note(ctx, RepinEvent, r); err != nil {
		return err
	}
	p.known.Keep(r.Programs...)
	return nil
}

type pinnedRun struct {
	bailey.Run
	pins    *Pins
	command string
	cage    bailey.Cage
}

func (r *pinnedRun) Cage() bailey.Cage { return r.cage }

func (r *pinnedRun) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	if err := r.pins.recordPins(ctx, r.command, r.cage.Programs); err != nil {
		return bailey.Exit{Code: bailey.NeverRan}, err
	}
	return r.Run.Start(ctx, lent, s)
}
