// Package gate is the spine: the one place where the order of a call's stages is written.
//
//	intent ▶ lookup ▶ restore ▶ check ▶ decide ▶ pre hooks ▶ (restore, check, decide) ▶ approve ▶ decide
//	       ▶ budget ▶ lend ▶ connect ▶ run ▶ redact ▶ post hooks ▶ redact ▶ promise ▶ outcome
//
// The order is the security property. The receipt is opened before anything else and sealed by defer, so
// every exit, a panic included, leaves one intent and one outcome. Each stage is an interface declared
// here and implemented elsewhere; the zero [bailey.Decision] denies; hooks only tighten; there is no
// branch without a runner.
package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"bailey"
	"bailey/pack"
)

// Ledger opens a receipt. When Open returns, the intent is durable and the space for its outcome is
// reserved; seal makes the outcome durable, once.
type Ledger interface {
	Open(ctx context.Context, i bailey.Intent) (seal func(bailey.Outcome) error, err error)
}

// Catalog knows the capabilities; an unknown one is NotFound, with close matches as the hint, and one that the profiles in
// use do not have is Blocked.
type Catalog interface {
	Lookup(id bailey.CapabilityID) (*pack.Capability, error)
	Profile() Profile
}

// Profile is what there is of the profiles in use. Its zero value is that of none.
type Profile struct {
	Name        string // for policy
	Environment string // for policy
	Edition     string // another when anything in them is
}

// Places opens a path input inside the session's workspace, once; what it returns is what is mounted.
type Places interface {
	// An input without a name is the session's workspace itself, whatever the path.
	Open(call bailey.Call, in pack.PathInput, path string) (bailey.Place, error)
	// Has reports whether something lies at a relative path below a place, on no way that leaves it. Read reads a place that is
	// a file. Both are about the descriptor that was opened.
	Has(p bailey.Place, below string) (bool, error)
	Read(p bailey.Place) (io.ReadCloser, error)
	// Freeze copies what a file holds to where nobody can change it, until release. Of what is no file, and where no file
	// can be kept so, there is no copy.
	Freeze(p bailey.Place) (f *bailey.Frozen, release func(), err error)
}

// Policy decides. It is asked at every decision anew, so that a rule changed meanwhile holds.
type Policy interface {
	Decide(r bailey.Request) bailey.Decision
}

// Hooks are other people's programs in the path. They see redacted views.
type Hooks interface {
	// Edition names the hooks that are asked now; "" where none is. What those of another one said counts for nothing.
	Edition() string
	Pre(ctx context.Context, call bailey.Call) (Verdict, error)
	// Holds reports whether what a tool writes has to wait until Post has seen it: else it may be with the caller before.
	Holds(id bailey.CapabilityID) bool
	// Post sees what came of a tool that ran, also of one that failed. With an error nothing of it leaves the gate.
	Post(ctx context.Context, call bailey.Call, o Output) (Output, error)
}

// Verdict is what a pre hook says. Its zero value denies; Allow means "no objection" and loosens nothing.
type Verdict struct {
	Effect bailey.Effect
	Rule   bailey.Rule    // names the hook that asks or denies
	Input  map[string]any // nil: unchanged
	Asked  []bailey.AskedHook
}

// Output is what a tool wrote, redacted, and how it ended, which no hook changes.
type Output struct {
	Stdout, Stderr []byte
	ExitCode       int
	Failed         bool
	Asked          []bailey.AskedHook // by Post, on its way back
}

// Approver asks people.
type Approver interface {
	Ask(ctx context.Context, q bailey.Question) (bailey.Answer, error)
	// Parked is what hooks said of a call that waits, by what they were asked about.
	Parked(of string) (bailey.Heard, bool)
	End(s bailey.SessionID) // what only that session could come back to is withdrawn
}

// Budgets bound what agents use up.
type Budgets interface {
	// Take counts a call that is about to run, or refuses it: a budget is spent. The allowance says how far the call may
	// go; its Settle is told, once, what the call used.
	Take(r bailey.Request) (Allowance, error)
	End(s bailey.SessionID) // what a session used is forgotten
}

// Allowance is what is left for a call by the tightest of its budgets. Zero bounds nothing.
type Allowance struct {
	Wall     time.Duration
	WallOf   string // the budget
	Output   int64  // bytes of stdout and stderr together
	OutputOf string
	Settle   func(Use)
}

// Use is what a call used: while its tool ran, by its processes, and what they wrote.
type Use struct {
	Wall, CPU time.Duration
	Output    int64
}

// Lender lends credentials for one call.
type Lender interface {
	// Scope says what a loan would come to, so that a person can be asked about it.
	Scope(ctx context.Context, wants []bailey.Want) ([]bailey.LeaseScope, error)
	Lend(ctx context.Context, l bailey.Loan) (bailey.Lease, error)
}

// Egress is the way out of cages.
type Egress interface {
	// Plan says what the cage of a capability needs so that its tool reaches these places, host:port or unix:daemon, as far as the
	// profile lets it; nil where it is to reach none.
	Plan(m *pack.Capability, places []string) (*bailey.Network, error)
	// Open makes the other side of a planned network, for one run.
	Open(n *bailey.Network, inject []bailey.Injection) (bailey.Way, error)
}

// Redactor turns secrets into tokens, per session, and gives back what may be given back.
type Redactor interface {
	Learn(s bailey.SessionID, secrets []bailey.Secret)
	Value(s bailey.SessionID, v any) any // a deep copy of decoded JSON, redacted
	Input(s bailey.SessionID, v any) any // the same of what a client sent; what is secret in it is learned
	Writer(s bailey.SessionID, w io.Writer) RedactingWriter
	Again(s bailey.SessionID, seen []byte) []byte // redacts what may hold this session's tokens already
	// Restore gives tokens in an input back what they stand for, where the manifest lets it. What holds the
	// categories of the secrets among that; policy has to permit them.
	Restore(s bailey.SessionID, m *pack.Capability, input map[string]any) (restored map[string]any, what []string, err error)
	End(s bailey.SessionID)
}

// RedactingWriter holds back no more than it must; Close flushes the rest.
type RedactingWriter interface {
	io.WriteCloser
	Count() int
}

// Config holds the stages. Every field is needed but those that say otherwise.
type Config struct {
	Ledger   Ledger
	Catalog  Catalog
	Places   Places
	Policy   Policy
	Hooks    Hooks
	Approver Approver
	Budgets  Budgets
	Lender   Lender
	Egress   Egress
	Redactor Redactor
	Runners  map[pack.Isolation]bailey.Runner
	Host     string
	Log      *slog.Logger
	// Observe, when set, learns how long each stage of a call took.
	Observe func(Step)
}

// Step is a stage of a call that was walked, or left with an error. The first is "intent", the last "outcome".
type Step struct {
	Receipt bailey.ReceiptID
	Stage   string
	Start   time.Time
	Took    time.Duration
}

// Gate carries calls. It is safe for concurrent use.
type Gate struct {
	Config
	looking chan struct{} // one for each command line of a preview that runs
}

// New refuses a gate with a stage missing.
func New(c Config) (*Gate, error) {
	for name, missing := range map[string]bool{
		"ledger": c.Ledger == nil, "catalog": c.Catalog == nil, "places": c.Places == nil,
		"policy": c.Policy == nil, "hooks": c.Hooks == nil, "approver": c.Approver == nil,
		"budgets": c.Budgets == nil, "lender": c.Lender == nil, "egress": c.Egress == nil, "redactor": c.Redactor == nil, "runners": len(c.Runners) == 0,
		"host": c.Host == "", "log": c.Log == nil,
	} {
		if missing {
			return nil, fmt.Errorf("gate without %s", name)
		}
	}
	for iso, r := range c.Runners {
		if r == nil {
			return nil, fmt.Errorf("gate without a runner for %s", iso)
		}
	}
	if c.Observe == nil {
		c.Observe = func(Step) {}
	}
	return &Gate{Config: c, looking: make(chan struct{}, maxLooking)}, nil
}

// Do carries one call from its intent to its outcome. The caller learns the result only after the
// outcome is durable.
func (g *Gate) Do(ctx context.Context, call bailey.Call) (res bailey.Result) {
	c := g.begin(call)
	defer c.release()
	seal, err := c.open(ctx)
	if err != nil {
		return c.unrecorded(err)
	}
	defer func() { res = c.seal(seal, recover()) }()

	for _, stage := range [...]struct {
		name string
		do   func(context.Context) error
		acts bool // a dry run stops before the first stage that asks, lends or runs
	}{
		{"lookup", c.lookup, false},
		{"restore", c.restore, false},
		{"check", c.check, false},
		{"decide", c.decide, false},
		{"pre hooks", c.preHooks, false},
		{"again", c.onceMore, false}, // restore, check and decide what a hook changed
		{"approve", c.approve, true},
		{"confirm", c.confirm, true}, // the policy of now decides, grants in hand
		{"budget", c.budget, true},
		{"lend", c.lend, true},
		{"connect", c.connect, true},      // the way out of the cage, where it has one
		{"run", c.start, true},            // what the tool writes passes the redactor on its way
		{"post hooks", c.postHooks, true}, // a tool that ran and failed ends the line here
		{"promise", c.promise, true},      // that its output is what the manifest says
	} {
		if stage.acts && call.DryRun {
			break
		}
		if err := c.timed(stage.name, ctx, stage.do); err != nil {
			return c.stop(err)
		}
	}
	c.finished = true
	return
}

// Request returns what policy would decide upon, for `policy explain`: the first stages, nothing more.
func (g *Gate) Request(ctx context.Context, call bailey.Call) (r bailey.Request, err error) {
	err = g.look(ctx, call, func(c *course) { r = c.request() })
	return r, err
}

// Cage returns what would hold the call, for `jail explain`. Its digest is that of the receipt which the same
// call would leave, but of one that somebody is asked about for files, which it gets as they were then. A look leaves none.
func (g *Gate) Cage(ctx context.Context, call bailey.Call) (cage bailey.Cage, err error) {
	err = g.look(ctx, call, func(c *course) {
		cage = c.cage()
		if w, ok := c.run.(bailey.WarmRun); ok {
			cage.Warm = w.Warm()
		}
	})
	return cage, err
}

// look walks the first stages and lets see what they came to.
func (g *Gate) look(ctx context.Context, call bailey.Call, see func(*course)) error {
	c := g.begin(call)
	defer c.release()
	for _, do := range []func(context.Context) error{c.lookup, c.restore, c.check} {
		if err := do(ctx); err != nil {
			return err
		}
	}
	see(c)
	return nil
}

// EndSession lets go of all that a session held.
func (g *Gate) EndSession(ctx context.Context, id bailey.SessionID) error {
	g.Redactor.End(id)
	g.Budgets.End(id)
	g.Approver.End(id)
	var errs []error
	for _, r := range g.Runners {
		if s, ok := r.(bailey.SessionRunner); ok {
			errs = append(errs, s.EndSession(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// Unbounded is the stage where no budget is set.
type Unbounded struct{}

func (Unbounded) Take(bailey.Request) (Allowance, error) { return Allowance{}, nil }

func (Unbounded) End(bailey.SessionID) {}

// NoEgress is the stage where no cage has a network.
type NoEgress struct{}

func (NoEgress) Plan(m *pack.Capability, places []string) (*bailey.Network, error) {
	if len(places) == 0 {
		return nil, nil
	}
	return nil, &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("%s wants to reach %s, and this gateway has no way out of a cage", m.ID, places[0])}
}

func (NoEgress) Open(*bailey.Network, []bailey.Injection) (bailey.Way, error) {
	return nil, &bailey.Error{Kind: bailey.Internal, Message: "no network was planned"}
}

// NoHooks is the stage where no hook is configured: no objection, nothing changed.
type NoHooks struct{}

func (NoHooks) Edition() string { return "" }

func (NoHooks) Pre(context.Context, bailey.Call) (Verdict, error) {
	return Verdict{Effect: bailey.Allow}, nil
}

func (NoHooks) Holds(bailey.CapabilityID) bool { return false }

func (NoHooks) Post(_ context.Context, _ bailey.Call, o Output) (Output, error) { return o, nil }
