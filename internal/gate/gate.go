// Package gate defines the order of the stages of a call. No other package does.
//
//	intent ▶ lookup ▶ restore ▶ check ▶ decide ▶ pre hooks ▶ (restore, check, decide) ▶ approve ▶ decide
//	       ▶ budget ▶ lend ▶ connect ▶ run ▶ redact ▶ post hooks ▶ redact ▶ promise ▶ outcome
//
// The security of the gateway depends on this order. The receipt is opened before anything else and sealed by defer, so
// every exit, including a panic, leaves exactly one intent and one outcome. Each stage is an interface that is declared
// here and implemented elsewhere. The zero [bailey.Decision] denies. Hooks can only make a decision stricter. Every
// path that executes a tool uses a runner.
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

// Ledger opens receipts. When Open returns, the intent is durable and the space for its outcome is reserved. seal makes
// the outcome durable and must be called once.
type Ledger interface {
	Open(ctx context.Context, i bailey.Intent) (seal func(bailey.Outcome) error, err error)
}

// Catalog knows the capabilities. Lookup returns NotFound for an unknown capability, with similar names as the hint,
// and Blocked if the active profiles do not include the capability.
type Catalog interface {
	Lookup(id bailey.CapabilityID) (*pack.Capability, error)
	Profile() Profile
}

// Profile describes the active profiles. The zero value means that no profile is active.
type Profile struct {
	Name        string // for policy
	Environment string // for policy
	Edition     string // changes whenever anything in the profiles changes
}

// Places opens a path input inside the workspace of the session, once. The returned descriptor is the one that is
// mounted.
type Places interface {
	// Open opens an input. If the input has no name, Open opens the workspace of the session itself and ignores the
	// path.
	Open(call bailey.Call, in pack.PathInput, path string) (bailey.Place, error)
	// Has reports whether a relative path exists below a place. It refuses a path that leaves the place, for example
	// through a symlink. Read reads a place that is a file. Both use the descriptor that was opened.
	Has(p bailey.Place, below string) (bool, error)
	Read(p bailey.Place) (io.ReadCloser, error)
	// Repository replaces the place of a directory by the places of the git repository around it: the top, and the
	// common directory if it is elsewhere. If there is no repository, it returns the place alone. If it fails, it closes
	// the place.
	Repository(call bailey.Call, in pack.PathInput, p bailey.Place) ([]bailey.Place, error)
	// GitPerson returns the settings of git of the person, and of the repository with these places.
	GitPerson(places []bailey.Place) pack.GitPerson
	// Checkout reads the git checkout to which the directory of the call belongs.
	Checkout(call bailey.Call) (pack.Checkout, error)
	// Load returns a regular file below a place, and false if there is none. It refuses a symbolic link on the way, and a
	// file of more than max bytes.
	Load(p bailey.Place, below string, max int64) (data []byte, there bool, err error)
	// Freeze copies the content of a file into immutable storage, which exists until release. f is nil if the place is
	// not a file, or if the platform cannot store such a copy.
	Freeze(p bailey.Place) (f *bailey.Frozen, release func(), err error)
}

// Policy decides. It is asked for every decision, so a rule that has changed in the meantime applies.
type Policy interface {
	Decide(r bailey.Request) bailey.Decision
}

// Hooks are external programs in the path of a call. They see only redacted data.
type Hooks interface {
	// Edition identifies the current set of hooks; it is "" if no hook is configured. Verdicts of another edition are
	// not reused.
	Edition() string
	Pre(ctx context.Context, call bailey.Call) (Verdict, error)
	// Holds reports whether the output of the tool must wait until Post has seen it. Otherwise the caller may get it
	// earlier.
	Holds(id bailey.CapabilityID) bool
	// Post gets the output of a tool that ran, even if the tool failed. If Post returns an error, none of the output
	// leaves the gate.
	Post(ctx context.Context, call bailey.Call, o Output) (Output, error)
}

// Verdict is the answer of the pre hooks. The zero value denies. Allow means "no objection" and never makes a decision
// less strict.
type Verdict struct {
	Effect bailey.Effect
	Rule   bailey.Rule    // names the hook that asks or denies
	Input  map[string]any // nil: unchanged
	Asked  []bailey.AskedHook
	// Notices are for the person: messages of hooks, and warnings about them.
	Notices []string
}

// Output is the redacted output of a tool and its exit status. Hooks cannot change the exit status.
type Output struct {
	Stdout, Stderr []byte
	ExitCode       int
	Failed         bool
	Asked          []bailey.AskedHook // hooks that Post asked
	Notices        []string           // as in Verdict
}

// Approver asks people.
type Approver interface {
	Ask(ctx context.Context, q bailey.Question) (bailey.Answer, error)
	// Parked returns the verdict of the hooks on a pending call. of identifies the question that the hooks answered.
	Parked(of string) (bailey.Heard, bool)
	End(s bailey.SessionID) // withdraws the questions that only this session could come back to
}

// Budgets limit the resources that agents use.
type Budgets interface {
	// Take counts a call that is about to run. It returns an error if a budget is used up. The allowance limits the
	// call. The gate must call its Settle once with the resources that the call used.
	Take(r bailey.Request) (Allowance, error)
	End(s bailey.SessionID) // forgets the usage of a session
}

// Allowance is the tightest remaining budget for a call. A zero field means no limit.
type Allowance struct {
	Wall     time.Duration
	WallOf   string // name of the budget
	Output   int64  // bytes of stdout and stderr together
	OutputOf string
	Settle   func(Use)
}

// Use holds the resources that a call used: the wall time of its tool, the CPU time of its processes, the bytes that
// they wrote, and the tokens and the price of a model.
type Use struct {
	Wall, CPU                 time.Duration
	Output                    int64
	InputTokens, OutputTokens int64
	MicroUSD                  int64
}

// Lender lends credentials for one call.
type Lender interface {
	// Scope describes a loan without lending, so that a person can be asked about it.
	Scope(ctx context.Context, wants []bailey.Want) ([]bailey.LeaseScope, error)
	Lend(ctx context.Context, l bailey.Loan) (bailey.Lease, error)
}

// Egress gives cages access to the network.
type Egress interface {
	// Plan returns the network that a cage needs so that its tool can reach these places (host:port or unix:daemon),
	// within the limits of the profile. It returns nil if the tool may reach no place.
	Plan(m *pack.Capability, places []string) (*bailey.Network, error)
	// Open creates the outer side of a planned network, for one run.
	Open(n *bailey.Network, inject []bailey.Injection) (bailey.Way, error)
}

// Redactor replaces secrets with tokens, per session, and restores them if that is allowed.
type Redactor interface {
	Learn(s bailey.SessionID, secrets []bailey.Secret)
	Value(s bailey.SessionID, v any) any // deep copy of decoded JSON, redacted
	// ForPerson is Value for a person who judges the call: addresses and names of hosts stay, secrets do not.
	ForPerson(s bailey.SessionID, v any) any
	Input(s bailey.SessionID, v any) any // like Value, for input of a client; secrets found in it are learned
	Writer(s bailey.SessionID, w io.Writer) RedactingWriter
	Again(s bailey.SessionID, seen []byte) []byte // redacts text that may already contain tokens of this session
	// Restore replaces tokens in an input with the original values, if the manifest allows it. The result what lists
	// the categories of the restored secrets, which policy must permit.
	Restore(s bailey.SessionID, m *pack.Capability, input map[string]any) (restored map[string]any, what []string,
		err error)
	End(s bailey.SessionID)
}

// RedactingWriter buffers only as much as it must. Close flushes the rest.
type RedactingWriter interface {
	io.WriteCloser
	Count() int
}

// Config holds the stages. Every field is required unless its comment says otherwise.
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
	Signer   Signer // optional: without it, a call that would have to sign is refused
	Runners  map[pack.Isolation]bailey.Runner
	Host     string
	Log      *slog.Logger
	// Observe is optional. It gets the duration of each stage of a call.
	Observe func(Step)
}

// Step is a stage of a call that has ended, with or without an error. The first one is "intent", the last one
// "outcome".
type Step struct {
	Receipt bailey.ReceiptID
	Stage   string
	Start   time.Time
	Took    time.Duration
}

// Gate executes calls. It is safe for concurrent use.
type Gate struct {
	Config
	looking chan struct{} // semaphore: one element for each running command line of a preview
}

// New returns an error if a stage is missing.
func New(c Config) (*Gate, error) {
	for name, missing := range map[string]bool{
		"ledger": c.Ledger == nil, "catalog": c.Catalog == nil, "places": c.Places == nil,
		"policy": c.Policy == nil, "hooks": c.Hooks == nil, "approver": c.Approver == nil,
		"budgets": c.Budgets == nil, "lender": c.Lender == nil, "egress": c.Egress == nil,
		"redactor": c.Redactor == nil, "runners": len(c.Runners) == 0,
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

// Do executes one call from its intent to its outcome. The caller gets the result only after the outcome is durable.
func (g *Gate) Do(ctx context.Context, call bailey.Call) (res bailey.Result) {
	c := g.newCallState(call)
	defer c.releaseAll()
	seal, err := c.openReceipt(ctx)
	if err != nil {
		return c.unrecordedResult(err)
	}
	defer func() { res = c.sealReceipt(seal, recover()) }()

	for _, stage := range [...]struct {
		name string
		do   func(context.Context) error
		acts bool // a dry run stops before the first stage that asks, lends or runs
	}{
		{"lookup", c.lookupCapability, false},
		{"restore", c.restoreTokens, false},
		{"check", c.checkInput, false},
		{"decide", c.decideCall, false},
		{"pre hooks", c.preHooks, false},
		{"again", c.redecide, false}, // restore, check and decide again if a hook changed the input
		{"approve", c.requestApproval, true},
		{"confirm", c.confirmDecision, true}, // the current policy decides, with the grants
		{"budget", c.reserveBudget, true},
		{"lend", c.lendCredentials, true},
		{"connect", c.openNetwork, true},    // opens the network of the cage, if it has one
		{"run", c.runTool, true},            // the redactor filters the output of the tool
		{"post hooks", c.postHooks, true},   // if the tool failed, the call ends here
		{"promise", c.validateOutput, true}, // checks the output against the manifest
	} {
		if stage.acts && call.DryRun {
			break
		}
		if err := c.runStage(stage.name, ctx, stage.do); err != nil {
			return c.failWith(err)
		}
	}
	c.finished = true
	return
}

// Request returns the request that policy would decide, for `policy explain`. It runs only the first stages.
func (g *Gate) Request(ctx context.Context, call bailey.Call) (r bailey.Request, err error) {
	err = g.planCall(ctx, call, func(c *callState) { r = c.policyRequest() })
	return r, err
}

// Cage returns the cage that the call would run in, for `jail explain`. Its digest is the same as in the receipt of
// that call, unless a person is asked about files of the call, because then the tool gets snapshots of them. Cage
// writes no receipt.
func (g *Gate) Cage(ctx context.Context, call bailey.Call) (cage bailey.Cage, err error) {
	err = g.planCall(ctx, call, func(c *callState) {
		cage = c.receiptCage()
		cage.Warm = c.run.Warm()
	})
	return cage, err
}

// planCall runs the first stages and passes the result to see.
func (g *Gate) planCall(ctx context.Context, call bailey.Call, see func(*callState)) error {
	c := g.newCallState(call)
	defer c.releaseAll()
	for _, do := range []func(context.Context) error{c.lookupCapability, c.restoreTokens, c.checkInput} {
		if err := do(ctx); err != nil {
			return err
		}
	}
	see(c)
	return nil
}

// EndSession releases everything that a session holds.
func (g *Gate) EndSession(ctx context.Context, id bailey.SessionID) error {
	g.Redactor.End(id)
	g.Budgets.End(id)
	g.Approver.End(id)
	var errs []error
	for _, r := range g.Runners {
		errs = append(errs, r.EndSession(ctx, id))
	}
	return errors.Join(errs...)
}

// Unbounded implements [Budgets] if no budget is configured.
type Unbounded struct{}

func (Unbounded) Take(bailey.Request) (Allowance, error) { return Allowance{}, nil }

func (Unbounded) End(bailey.SessionID) {}

// NoEgress implements [Egress] if no cage has a network.
type NoEgress struct{}

func (NoEgress) Plan(m *pack.Capability, places []string) (*bailey.Network, error) {
	if len(places) == 0 {
		return nil, nil
	}
	return nil, bailey.Unavailable.Errorf("",
		"%s needs to reach %s, but this gateway has no network access for jails", m.ID, places[0])
}

func (NoEgress) Open(*bailey.Network, []bailey.Injection) (bailey.Way, error) {
	return nil, bailey.Internal.New("no network was planned", "")
}

// NoHooks implements [Hooks] if no hook is configured: it never objects and changes nothing.
type NoHooks struct{}

func (NoHooks) Edition() string { return "" }

func (NoHooks) Pre(context.Context, bailey.Call) (Verdict, error) {
	return Verdict{Effect: bailey.Allow}, nil
}

func (NoHooks) Holds(bailey.CapabilityID) bool { return false }

func (NoHooks) Post(_ context.Context, _ bailey.Call, o Output) (Output, error) { return o, nil }

// Own is the runner of calls that agents execute themselves. The gate only decides them. No cage of the gateway
// applies, and Cage says so.
type Own struct{ bailey.PlainRunner }

func (Own) Plan(_ context.Context, job bailey.Job) (bailey.Run, error) {
	return advisoryRun{id: job.Capability}, nil
}

type advisoryRun struct {
	bailey.PlainRun
	id bailey.CapabilityID
}

func (advisoryRun) Cage() bailey.Cage { return bailey.Cage{Kind: "agent"} }

func (o advisoryRun) Start(context.Context, bailey.Lent, bailey.Streams) (bailey.Exit, error) {
	return bailey.Exit{Code: bailey.NeverRan}, advisoryOnlyError(o.id)
}

func (advisoryRun) Close() error { return nil }

func advisoryOnlyError(id bailey.CapabilityID) error {
	return bailey.Denied.Errorf("use a dry run, or call a capability that the gate runs",
		"%s is run by an agent itself; the gate only decides", id)
}
