// Package bailey is the vocabulary of the gate: what a call is, who makes it, what was decided and
// what the receipt says. It imports the standard library alone, so that every other package may speak it.
//
// A [Call] enters through a door, the gate decides it, a runner executes it, and one [Receipt] is left:
// an [Intent] written before anything happens and an [Outcome] written before the caller learns the result.
package bailey

import (
	"context"
	"io"
	"os"
	"slices"
	"time"
)

// Distinct types keep one kind of identifier from standing where another is meant.
type (
	CapabilityID string // "git.status": pack, a dot, the action
	ReceiptID    string // "r-" and 26 characters, ordered by time
	SessionID    string // "s-" and 26 characters
	ApprovalID   string // "a-" and 26 characters
	GrantID      string // "g-" and 26 characters: a grant that stands for a while
	RuleID       string // the @id of a policy rule
)

// Principal is who acts. Every field comes from the door's credential or from configuration;
// what a client says of itself stands in [Call.Client] and decides nothing.
type Principal struct {
	Agent        string   `json:"agent"`
	Person       string   `json:"person,omitempty"` // whom the agent acts for
	Roles        []string `json:"roles,omitempty"`
	Organisation string   `json:"organisation,omitempty"`
	Token        string   `json:"token,omitempty"` // the id of the one that the agent showed, which bounds what it may
}

// Session is one connection to a door, or a single call where the door keeps none.
type Session struct {
	ID         SessionID `json:"id"`
	Unattended bool      `json:"unattended,omitempty"` // from configuration, never from the caller
	Single     bool      `json:"-"`                    // it is of one call alone, and nobody can come back to it
}

// Target is what a capability acts upon.
type Target struct {
	Kind string `json:"kind"` // local, host, sandbox
	Name string `json:"name,omitempty"`
}

// Call is one typed action that somebody asks for.
type Call struct {
	Capability CapabilityID
	Input      map[string]any // decoded JSON; numbers as json.Number
	Text       bool           // the values were typed as words: strings become what the schema wants
	Principal  Principal
	Session    Session
	Door       string // cli, mcp, hook
	Dir        string // the client's working directory, absolute: relative paths start here
	Client     string // what the client says of itself: context, never identity
	DryRun     bool   // decide and plan, execute nothing
	Own        bool   // of a dry run: the agent runs it itself, with no cage but its own
	// Patience is how long to stay for an answer, should a person be asked; then the call is parked and pending. Asked is
	// that of its [Question].
	Patience time.Duration
	Asked    func(ctx context.Context, q Question)

	// Within is set by the gate alone, for a call that is a step of a workflow.
	Within *Within

	// Stdout and Stderr, when set, receive the redacted output as it comes, and the Result keeps
	// none of it. When nil the Result holds it, at most [OutputCap] bytes each.
	Stdout, Stderr io.Writer
	// Whole lifts [OutputCap] from what Stdout and Stderr receive, where no hook holds it back. Budgets bound it, and the
	// receipt keeps as much as ever.
	Whole bool
}

// Within says of which workflow a call is a step, and what a person granted of it with the workflow.
type Within struct {
	Receipt  ReceiptID // of the workflow
	Step     string
	Approval ApprovalID
	Granted  []Rule   // for the step that Subject means, and for no other
	Subject  [32]byte // SHA-256 over all that is planned of it
}

// OutputCap bounds what is kept of a tool's stdout, and of its stderr, in bytes.
const OutputCap = 1 << 20

// Effect is what a decision does. Its zero value denies.
type Effect uint8

const (
	Deny  Effect = iota // refused
	Ask                 // refused unless a person grants what the asking rules want
	Allow               // may run
)

func (e Effect) String() string {
	switch e {
	case Allow:
		return "allow"
	case Ask:
		return "ask"
	}
	return "deny"
}

// Stricter returns the stricter of two effects; hooks and second decisions can only tighten.
func (e Effect) Stricter(o Effect) Effect { return min(e, o) }

// Decision is the policy's answer. The zero Decision denies.
type Decision struct {
	Effect Effect
	Rules  []Rule // the rules that decided; none when nothing allowed the call
	Asks   []Rule // for Ask: the rules whose grants are missing
	Reason string // one sentence for the agent
	Hint   string // what to do now
	Policy string // digest of the rules that decided
}

// Made reports whether anybody decided: a call may end before it comes to that.
func (d Decision) Made() bool {
	return d.Effect != Deny || d.Reason != "" || d.Policy != "" || len(d.Rules) > 0
}

// Rule names a rule that took part in a decision.
type Rule struct {
	ID     RuleID `json:"id"`
	Source string `json:"source"` // file:line
	Reason string `json:"reason,omitempty"`
	// Of an asking rule: who may grant it, how many of them, for how long.
	Role  string        `json:"role,omitempty"`
	Level Level         `json:"level,omitempty"` // the least that will do
	Count int           `json:"count,omitempty"`
	TTL   time.Duration `json:"ttl,omitempty"` // nanoseconds
	// Digest is SHA-256 over what the rule means, hex: a grant of it counts for no other rule of the same id.
	Digest string `json:"digest,omitempty"`
}

// Same reports whether another rule is this one, and means the same.
func (r Rule) Same(o Rule) bool { return r.ID == o.ID && r.Digest == o.Digest }

// Request is what policy decides upon: the checked call, nothing that was not verified.
type Request struct {
	Capability CapabilityID
	Manifest   string // digest of the one that runs; "" where none does
	Principal  Principal
	Session    Session
	Target     Target
	Input      map[string]any    // typed by the manifest's schema, pseudonyms restored
	Paths      map[string]string // input name → path of the opened descriptor
	Dir        string            // where the tool runs
	Cage       string            // full, landlock, builtin; agent: whoever asks runs it; none, seatbelt on a platform without cages
	Absent     []string          // layers the cage lacks
	Changed    bool              // a program others than root could write is not what it was at an earlier call
	Profile    string
	Environ    string   // environment the profile names: production, staging, …
	Writes     bool     // a place is mounted writable
	Restores   []string // categories of secrets that the input was given back
	Egress     []string // host:port of what the tool could reach, sorted
	Waivers    []string // what the manifest wants beyond a tool's cage, as "fs.exec"; sorted
	Time       time.Time
	Approvals  []RuleID // rules whose grants are in hand
}

// Place is a path input after the check: the descriptor that was opened and the path it has.
// What runs gets this descriptor, never the path again.
type Place struct {
	Input  string
	Path   string   // canonical, of the descriptor
	File   *os.File // O_PATH
	Write  bool
	Frozen *Frozen // what the tool gets at that path in place of the file; nil: the file
}

// Frozen is what a file held when a person was asked about it. Nobody can change it, nor can whoever made it.
type Frozen struct {
	File   *os.File // in memory, sealed
	Size   int64    // bytes
	SHA256 Secret   // hex
}

// Job is a checked call as a runner gets it: everything rendered, nothing left to interpret.
type Job struct {
	Capability CapabilityID
	Command    string   // program name or absolute path, from the manifest
	Args       []string // without argv[0]
	Env        []string // NAME=value, from the manifest; lent values come at the start
	EnvNames   []string // names that will be lent
	FileNames  []string // names of variables that will hold the path of a file that is lent
	Dir        string   // working directory inside the cage; "" is the cage's HOME
	Places     []Place
	Read       []string // absolute paths of the tool's own that it may read
	Libs       []string // directories whose shared objects it may load while it runs
	Exec       []string // helpers the tool may execute, absolute
	Hide       []string // files below a read-only place that the tool finds empty, absolute
	NeedsProc  bool
	TTY        bool // a terminal of its own, for a person; no call of an agent has one
	Limits     Limits
	Timeout    time.Duration // zero is [DefaultTimeout], [Endless] is none
	Network    *Network      // nil: the cage has none
	Wall       *Wall         // the cage is an agent's; nil: a tool's
	Session    SessionID
}

// DefaultTimeout ends a call that nobody bounded. Endless bounds none: an agent's session, for a person.
const (
	DefaultTimeout               = 10 * time.Minute
	Endless        time.Duration = 1<<63 - 1
)

// Wall is what the cage of an agent has beyond that of a tool: the host's programs, a project it may change and run, a home.
// Each of these is a waiver that policy names. A tool that builds a project has some, as its manifest says.
type Wall struct {
	Trees []Tree // of the host, read-only; their files may be executed
	Home  *Place // becomes the cage's HOME, and its files may be executed; nil: an empty one, gone with the cage
	Cache string // of a tool: whose home for this project is to be Home; the runner opens it
	// A Cache keeps two homes for a project: one for tools that download, and one for all others. If Fetches is true, Home is the first.
	// If it is false, Home is the second, and Fetched is the first, shown read-only at [FetchedDir].
	Fetches bool
	Fetched *Place
	Run     bool     // files in the writable places and in HOME may be executed
	Keep    []string // files and directories below a writable place that stay as they are, absolute; only such as exist
	Path    string   // search path, in place of the constant
	Unix    bool     // sockets of the machine: those of the cage's own, and those that [Network] plans
	Pty     bool     // terminals of its own, at /dev/pts
}

// FetchedDir is where a tool that builds sees the home of the tools that download for it.
const FetchedDir = "/home/fetched"

// Tree is a file or directory of the host.
type Tree struct {
	Path string // absolute
	At   string // where the cage shows it; "" is at Path
}

// Limits bound one call; a zero field is the built-in value.
type Limits struct {
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	Tasks       int   `json:"tasks,omitempty"`
	OpenFiles   int   `json:"openFiles,omitempty"`
	FileBytes   int64 `json:"fileBytes,omitempty"`
}

// Streams are what a run reads and writes. Each writer is called from one goroutine, which may be the same for both: a
// writer that waits for the other may wait for ever.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// TTY takes the place of the three in a job that was planned with one: the slave of a pseudo-terminal
	// made for this run, never a terminal that something outside the cage reads from.
	TTY *os.File
}

// Gentle is a cause of cancellation that leaves a running tool time to end: SIGTERM, a second, SIGKILL.
// With any other cause it is killed at once.
type Gentle struct{ Cause error }

func (g Gentle) Error() string { return g.Cause.Error() }
func (g Gentle) Unwrap() error { return g.Cause }

// A WarmStep is what a warm helper makes of a line of a cage's plan.
type WarmStep struct {
	When string `json:"when"`           // once; for each call; as the call's init; as the tool
	Line int    `json:"line,omitempty"` // of the plan, from 1; 0 where it is for none
	Text string `json:"text,omitempty"` // the system call, where it is no step as the plan has it
}

// A WarmRun is a Run that a warm helper may serve, of which it tells what that does; nothing where none does.
type WarmRun interface {
	Run
	Warm() []WarmStep
}

// A MeteredRun is a Run that says, once Start has returned, how much processor time its processes took: all that lived
// in a cage, and what it took to build it; of a cage that was warm the tool, and those it waited for.
type MeteredRun interface {
	Run
	CPU() time.Duration
}

// Cage states what a run will be held by. A receipt copies it, so nothing may stand here that does
// not hold: a layer is listed when the plan applies it and refuses if it cannot.
type Cage struct {
	Kind         string     `json:"cage"` // full, landlock, builtin, agent; seatbelt; [Uncaged]
	Enforced     bool       `json:"sandboxEnforced"`
	Layers       []string   `json:"layers,omitempty"`
	Absent       []string   `json:"absent,omitempty"`       // layers this host cannot give, which policy has to accept
	Lacks        []string   `json:"lacks,omitempty"`        // parts of a layer this kernel is too old for
	Lesser       string     `json:"lesser,omitempty"`       // why it is not the full cage, and the cure
	PlanDigest   string     `json:"planDigest,omitempty"`   // SHA-256 of Plan, hex
	Plan         string     `json:"-"`                      // canonical text of the plan, at most [PlanCap]; "" where it holds a secret
	PlanLayers   []string   `json:"-"`                      // the layer of each line of Plan, "" for scaffolding
	Warm         []WarmStep `json:"-"`                      // for whoever explains a cage; nil where no warm helper serves the plan
	Binary       string     `json:"binary,omitempty"`       // resolved path
	BinaryDigest string     `json:"binaryDigest,omitempty"` // SHA-256 of the descriptor that is executed
	Programs     []Program  `json:"programs,omitempty"`     // all that may be executed: the binary, interpreters, helpers
}

// Uncaged is the kind of no cage at all: the tool may do what the gateway's user may.
const Uncaged = "none"

// PlanCap bounds a plan's text, in bytes as JSON writes it: the ledger keeps it once, in one entry.
const PlanCap = 48 << 10

// Program is an executable file that a cage pins.
type Program struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Copied bool   `json:"copied,omitempty"` // others than root could write it, so that the cage got a copy
	Was    string `json:"was,omitempty"`    // its digest at an earlier call, where that was another one
}

// Changed reports whether a program that others than root could write is not what it was.
func (c Cage) Changed() bool {
	return slices.ContainsFunc(c.Programs, func(p Program) bool { return p.Copied && p.Was != "" })
}

// Exit is how a run ended.
type Exit struct {
	Code     int    // as a shell would say it: 128+n after signal n
	TimedOut bool   // the call's time was up
	Over     string // a bound that the tool passed and was ended for, in words: "the tool used more than …"
}

// NeverRan is the exit code of a tool that was not started.
const NeverRan = -1

// Runner plans a job: everything that can be known, opened or refused before it starts.
type Runner interface {
	Plan(ctx context.Context, job Job) (Run, error)
}

// Run is a planned job that starts at most once. It owns its descriptors until Close.
type Run interface {
	Cage() Cage
	// Start executes and returns when nothing of the run is left alive. What is lent joins the
	// environment. An error with [NeverRan] as the exit's code says that the tool was not started.
	Start(ctx context.Context, lent Lent, s Streams) (Exit, error)
	Close() error
}

// SessionRunner is a Runner that keeps something for as long as a session lives.
type SessionRunner interface {
	Runner
	EndSession(ctx context.Context, id SessionID) error
}
