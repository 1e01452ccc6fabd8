// Package bailey defines the common types of the gateway: calls, principals, decisions and receipts. It imports only
// the standard library, so every other package can import it.
//
// A [Call] enters through a front end, the gate decides it, and a runner executes it. The call leaves one [Receipt]: an
// [Intent], written before anything happens, and an [Outcome], written before the caller gets the result.
package bailey

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Distinct types prevent one kind of identifier from being used as another.
type (
	CapabilityID string // for example "git.status": pack, dot, action
	ReceiptID    string // "r-" and 26 characters, ordered by time
	SessionID    string // "s-" and 26 characters
	ApprovalID   string // "a-" and 26 characters
	GrantID      string // "g-" and 26 characters: a standing grant
	RuleID       string // the @id annotation of a policy rule
)

// Principal identifies the caller. Every field comes from the credential of the front end or from configuration. The
// name that a client gives itself is in [Call.Client] and has no influence on decisions.
type Principal struct {
	Agent        string   `json:"agent"`
	Person       string   `json:"person,omitempty"` // the person for whom the agent acts
	Roles        []string `json:"roles,omitempty"`
	Organisation string   `json:"organisation,omitempty"`
	// ID of the token that the agent presented; it limits the rights of the agent
	Token string `json:"token,omitempty"`
}

// Session is one connection to a front end, or a single call if the front end keeps no connection.
type Session struct {
	ID         SessionID `json:"id"`
	Unattended bool      `json:"unattended,omitempty"` // from configuration, never from the caller
	Single     bool      `json:"-"`                    // the session ends with one call; the caller cannot return to it
}

// Target is the object that a capability acts on.
type Target struct {
	Kind string `json:"kind"` // local, host, sandbox
	Name string `json:"name,omitempty"`
}

// Call is one typed action that a caller requests.
type Call struct {
	Capability CapabilityID
	Input      map[string]any // decoded JSON; numbers as json.Number
	Text       bool           // values are command-line text; strings are converted to the types of the schema
	Principal  Principal
	Session    Session
	Door       string // cli, mcp, hook
	Dir        string // the client's working directory, absolute: relative paths start here
	Client     string // self-description of the client: context, never identity
	DryRun     bool   // decide and plan only, execute nothing
	Own        bool   // for a dry run: the agent executes the call itself, in no cage but its own
	// Timeout is the time limit of the tool, at most that of the manifest. 0 means that of the manifest.
	Timeout time.Duration
	// Patience is the time to wait for an answer if a person must be asked. After that the call becomes pending. Asked
	// is the callback in [Question].
	Patience time.Duration
	Asked    func(ctx context.Context, q Question)

	// Within is set only by the gate, for a call that is a step of a workflow.
	Within *Within

	// Stdout and Stderr are optional. If set, they receive the redacted output as it arrives, and the Result contains
	// none of it. If nil, the Result contains the output, at most [OutputCap] bytes for each stream.
	Stdout, Stderr io.Writer
	// Whole removes the limit [OutputCap] for Stdout and Stderr, unless a hook holds the output back. Budgets still
	// apply, and the receipt keeps the same amount as otherwise.
	Whole bool
}

// Within identifies the workflow that a step belongs to, and the rules that a person granted for the step together with
// the workflow.
type Within struct {
	Receipt  ReceiptID // of the workflow
	Step     string
	Approval ApprovalID
	Granted  []Rule   // for the step that Subject identifies, and for no other
	Subject  [32]byte // SHA-256 of everything that is planned for the step
}

// OutputCap limits the kept stdout of a tool, and its kept stderr, in bytes each.
const OutputCap = 1 << 20

// Effect is the result of a decision. The zero value denies.
type Effect uint8

const (
	Deny  Effect = iota // refused
	Ask                 // refused unless a person grants the asking rules
	Allow               // allowed to run
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

// Stricter returns the stricter of two effects. Hooks and later decisions can only make a decision stricter.
func (e Effect) Stricter(o Effect) Effect { return min(e, o) }

// Decision is the answer of the policy. The zero value denies.
type Decision struct {
	Effect Effect
	Rules  []Rule // the rules that decided; empty if no rule allowed the call
	Asks   []Rule // for Ask: the rules that still need a grant
	Reason string // one sentence for the agent
	Hint   string // how to proceed
	Policy string // digest of the rules that decided
}

// Made reports whether a decision was made. A call may end before that.
func (d Decision) Made() bool {
	return d.Effect != Deny || d.Reason != "" || d.Policy != "" || len(d.Rules) > 0
}

// Rule identifies a rule that took part in a decision.
type Rule struct {
	ID     RuleID `json:"id"`
	Source string `json:"source"` // file:line
	Reason string `json:"reason,omitempty"`
	// For a rule that asks: the role, the number of people and the duration of a grant.
	Role  string        `json:"role,omitempty"`
	Level Level         `json:"level,omitempty"` // minimum level of the answer
	Count int           `json:"count,omitempty"`
	TTL   time.Duration `json:"ttl,omitempty"` // nanoseconds
	// Session means that an answer lets through every later call of the same session about which only such rules ask.
	Session bool `json:"session,omitempty"`
	// Digest is the SHA-256 of the meaning of the rule, in hex. A grant is not valid for another rule with the same ID.
	Digest string `json:"digest,omitempty"`
}

// Same reports whether o has the same ID and the same meaning.
func (r Rule) Same(o Rule) bool { return r.ID == o.ID && r.Digest == o.Digest }

// Request is the input of a policy decision: the checked call, with verified data only.
type Request struct {
	Capability CapabilityID
	Manifest   string // digest of the manifest that runs; "" if there is no manifest
	Principal  Principal
	Session    Session
	Target     Target
	Labels     []string          // of the target, such as env=prod; sorted
	Commands   []string          // programs that the call names to run in a sandbox; "?" if there may be others
	Input      map[string]any    // typed by the schema of the manifest, redaction tokens restored
	Paths      map[string]string // input name → path of the opened descriptor
	Dir        string            // working directory of the tool
	Cage       string            // full, landlock, builtin; agent: the agent runs it; none: no cage; seatbelt on macOS
	Absent     []string          // layers the cage lacks
	Changed    bool              // a program that users other than root can write differs from an earlier call
	Profile    string
	Environ    string   // environment that the profile names, such as production or staging
	Writes     bool     // a place is mounted writable
	Restores   []string // categories of secrets that were restored in the input
	Egress     []string // host:port of each reachable destination, sorted
	Waivers    []string // rights beyond the normal cage of a tool, such as "fs.exec"; sorted
	Time       time.Time
	Approvals  []RuleID // rules that have a grant
}

// Place is a path input after the check: the opened descriptor and its path. The run uses this descriptor and never
// opens the path again.
type Place struct {
	Input  string
	Path   string   // canonical path of the descriptor
	File   *os.File // O_PATH
	Write  bool
	Frozen *Frozen // snapshot that the tool gets at this path instead of the file; nil: the file
	// Repository is set if the place is the top of a git repository that was found from the input upwards.
	Repository *Repository
}

// Repository says where the parts of a git repository are (gitrepository-layout(5)). All paths are canonical.
type Repository struct {
	Dir    string // the directory that the input names: the top or below it
	Top    string // the directory with .git, or a bare repository itself
	GitDir string // HEAD and index of this work tree
	Common string // configuration, objects and references
	Bare   bool   // there is no work tree
}

// Below returns the path that git uses for one below the top, such as "/.git/config".
func (r *Repository) Below(path string) string {
	name, inside := strings.CutPrefix(path, "/.git/")
	switch {
	case path == "/.git" && r.Bare:
		return r.GitDir
	case !inside:
		return r.Top + path
	case name == "HEAD":
		return r.GitDir + "/HEAD"
	}
	return r.Common + "/" + name
}

// IsCommon reports whether the gate found the place as the common directory of a repository.
func (p Place) IsCommon() bool { return strings.HasSuffix(p.Input, CommonInput("")) }

// CommonInput returns the input name of the place that is the common directory of the repository of an input. No
// manifest can have an input of this name.
func CommonInput(input string) string { return input + "/.git" }

// Frozen is a snapshot of a file from the time of the question. No process can change it, including the process that
// created it.
type Frozen struct {
	File   *os.File // memory file, sealed
	Size   int64    // bytes
	SHA256 Secret   // hex
}

// Job is a checked call in the form that a runner takes. Everything is rendered, so the runner interprets nothing.
type Job struct {
	Capability CapabilityID
	Command    string   // program name or absolute path, from the manifest
	Args       []string // without argv[0]
	Env        []string // NAME=value, from the manifest; the lent values are added at the start
	EnvNames   []string // names of the variables that will be lent
	FileNames  []string // names of the variables that will contain the path of a lent file
	Dir        string   // working directory in the cage; "" is the HOME of the cage
	Places     []Place
	Read       []string // absolute paths that the tool itself needs to read
	Libs       []string // directories with shared objects that the tool may load at run time
	Exec       []string // helper programs that the tool may execute, absolute
	Hide       []string // files below a read-only place that appear empty to the tool, absolute
	NeedsProc  bool
	TTY        bool // has its own terminal, for a person; never set for calls of agents
	Limits     Limits
	Timeout    time.Duration // zero means [DefaultTimeout], [Endless] means none
	Network    *Network      // nil: the cage has no network
	Wall       *Wall         // extra rights, such as those of an agent jail; nil: the cage of a normal tool
	Session    SessionID
	Principal  Principal // the caller, for a runner whose objects belong to callers
}

// DefaultTimeout applies to a call without a timeout. Endless means no timeout, for example for the session of an agent
// that a person uses.
const (
	DefaultTimeout               = 10 * time.Minute
	Endless        time.Duration = 1<<63 - 1
)

// Wall describes the rights of an agent jail beyond those of a tool's cage: programs of the host, a project that it may
// change and execute, and a home. Each of these is a waiver that policy names. A tool that builds a project has some of
// them if its manifest says so.
type Wall struct {
	Trees []Tree // read-only trees of the host; their files may be executed
	Home  *Place // HOME of the cage, with executable files; nil: an empty one, deleted with the cage
	Cache string // for a tool: the pack whose home for this project becomes Home; the runner opens it
	// A Cache keeps two homes for a project: one for tools that download, and one for all others. If Fetches is true,
	// Home is the first. If it is false, Home is the second, and Fetched is the first, mounted read-only at
	// [FetchedDir].
	Fetches bool
	Fetched *Place
	Run     bool     // files in writable places and in HOME may be executed
	Keep    []string // files and directories below a writable place that stay unchanged, absolute; they must exist
	Path    string   // search path that replaces the default one
	Unix    bool     // Unix sockets: those inside the cage, and those that [Network] plans
	Pty     bool     // its own terminals, at /dev/pts
}

// FetchedDir is the path in the cage of a build tool at which the home of the downloading tools is mounted.
const FetchedDir = "/home/fetched"

// Tree is a file or directory of the host.
type Tree struct {
	Path string // absolute
	At   string // path in the cage; "" means Path
}

// Limits are the limits of one call. A zero field means the default value.
type Limits struct {
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	Tasks       int   `json:"tasks,omitempty"`
	OpenFiles   int   `json:"openFiles,omitempty"`
	FileBytes   int64 `json:"fileBytes,omitempty"`
}

// Streams are the standard streams of a run. Each writer is called from one goroutine, which may be the same for both.
// A writer that waits for the other one can therefore block forever.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// TTY replaces the three streams in a job that was planned with a TTY. It is the slave of a pseudo-terminal that
	// was created for this run. It must not be a terminal that a process outside the cage reads from.
	TTY *os.File
}

// Gentle is a cancellation cause that gives a running tool time to exit: SIGTERM, one second, then SIGKILL. With any
// other cause the tool is killed immediately.
type Gentle struct{ Cause error }

func (g Gentle) Error() string { return g.Cause.Error() }
func (g Gentle) Unwrap() error { return g.Cause }

// A WarmStep is the action of a warm helper for one line of a cage plan.
type WarmStep struct {
	When string `json:"when"`           // once, for each call, as init of the call, or as the tool
	Line int    `json:"line,omitempty"` // line of the plan, from 1; 0 if the step belongs to no line
	Text string `json:"text,omitempty"` // the system call, if it is not a step of the plan
}

// Cage describes the isolation of a run. Receipts copy it, so it must list only isolation that is in force: a layer is
// listed if the plan applies it and fails when it cannot.
type Cage struct {
	Kind         string     `json:"cage"` // full, landlock, builtin, agent, seatbelt or [Uncaged]
	Enforced     bool       `json:"sandboxEnforced"`
	Layers       []string   `json:"layers,omitempty"`
	Absent       []string   `json:"absent,omitempty"`       // layers that this host lacks; policy must accept this
	Lacks        []string   `json:"lacks,omitempty"`        // parts of a layer that need a newer kernel
	Lesser       string     `json:"lesser,omitempty"`       // why it is not the full cage, and the remedy
	PlanDigest   string     `json:"planDigest,omitempty"`   // SHA-256 of Plan, hex
	Plan         string     `json:"-"`                      // canonical text, at most [PlanCap]; "" if it contains a secret
	PlanLayers   []string   `json:"-"`                      // the layer of each line of Plan, "" for setup lines
	Warm         []WarmStep `json:"-"`                      // steps of the warm helper; nil if it does not serve the plan
	Binary       string     `json:"binary,omitempty"`       // resolved path
	BinaryDigest string     `json:"binaryDigest,omitempty"` // SHA-256 of the executed descriptor
	Labels       []string   `json:"labels,omitempty"`       // of the source host or sandbox that runs it
	Commands     []string   `json:"commands,omitempty"`     // as in [Request]
	Machine      *Machine   `json:"machine,omitempty"`      // nil: the run is in no sandbox
	Programs     []Program  `json:"programs,omitempty"`     // all executable programs: the binary, interpreters, helpers
}

// Machine identifies the virtual machine of a sandbox that a run uses or creates.
type Machine struct {
	Sandbox     string `json:"sandbox,omitempty"`
	Image       string `json:"image,omitempty"`
	ImageDigest string `json:"imageDigest,omitempty"` // SHA-256, hex
	Accelerator string `json:"accelerator,omitempty"` // kvm or emulated
	Machine     string `json:"machine,omitempty"`     // its type, for example microvm
}

// Uncaged is the kind of a run without a cage: the tool has all rights of the user of the gateway.
const Uncaged = "none"

// PlanCap limits the text of a plan, in bytes of its JSON form. The ledger stores it once, in one entry.
const PlanCap = 48 << 10

// Program is an executable file that a cage pins.
type Program struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Copied bool   `json:"copied,omitempty"` // users other than root could write it, so the cage got a copy
	Was    string `json:"was,omitempty"`    // digest at an earlier call, if it was different
}

// Changed reports whether a program that users other than root can write differs from an earlier call.
func (c Cage) Changed() bool {
	return slices.ContainsFunc(c.Programs, func(p Program) bool { return p.Copied && p.Was != "" })
}

// Exit describes how a run ended.
type Exit struct {
	Code     int    // as in a shell: 128+n after signal n
	TimedOut bool   // the timeout of the call expired
	Over     string // the limit for which the tool was stopped, as text: "the tool used more than …"
	// Login describes a credential that the run obtained by itself, for example the certificate of a login. It is added to
	// the leases of the receipt, so it must contain no secret.
	Login string
	Model *ModelUse // of a request to a model
}

// ModelUse is the record of one request to a model. It has no text of the request or of the answer.
type ModelUse struct {
	Status       int      `json:"status,omitempty"` // HTTP status of the provider; 0: no answer arrived
	Model        string   `json:"model,omitempty"`  // as the provider names it in its answer
	StopReason   string   `json:"stopReason,omitempty"`
	InputTokens  int64    `json:"inputTokens,omitempty"` // without those of the provider's cache
	OutputTokens int64    `json:"outputTokens,omitempty"`
	CachedTokens int64    `json:"cachedTokens,omitempty"` // read from the provider's cache, or written to it
	Estimated    bool     `json:"estimated,omitempty"`    // the provider reported fewer tokens than its texts can have
	MicroUSD     int64    `json:"microUsd,omitempty"`     // the price by the table of prices, in millionths of a US dollar
	Tools        []string `json:"tools,omitempty"`        // names of the tools that the model called, each once
	FirstMillis  int64    `json:"firstMs,omitempty"`      // until the first byte of the answer
	PromptBytes  int      `json:"promptBytes,omitempty"`  // length of the last text of the person
	Hidden       int      `json:"hidden,omitempty"`       // texts of the request that were changed by the redaction
	Restored     int      `json:"restored,omitempty"`     // tokens that were restored in the answer
	Misses       int      `json:"misses,omitempty"`       // texts that look like tokens and could not be restored
}

// Tokens returns the tokens that budgets count, of the input and of the output.
func (u *ModelUse) Tokens() (in, out int64) {
	if u == nil {
		return 0, 0
	}
	return u.InputTokens + u.CachedTokens, u.OutputTokens
}

// Price returns the price that budgets count, in millionths of a US dollar.
func (u *ModelUse) Price() int64 {
	if u == nil {
		return 0
	}
	return u.MicroUSD
}

// NeverRan is the exit code of a tool that was not started.
const NeverRan = -1

// Runner plans a job. Plan must find, open or refuse everything that is possible before the start.
type Runner interface {
	Plan(ctx context.Context, job Job) (Run, error)
	// EndSession releases what the runner keeps for a session.
	EndSession(ctx context.Context, id SessionID) error
}

// PlainRunner is for embedding in a Runner that keeps nothing for a session. A Runner that wraps another one embeds
// that one instead, so that it forwards every method that it does not change.
type PlainRunner struct{}

// EndSession does nothing.
func (PlainRunner) EndSession(context.Context, SessionID) error { return nil }

// Run is a planned job that starts at most once. It owns its descriptors until Close.
type Run interface {
	Cage() Cage
	// Start executes the job and returns when no process of the run is alive. The lent values are added to the
	// environment. If Start returns an error with exit code [NeverRan], the tool was not started.
	Start(ctx context.Context, lent Lent, s Streams) (Exit, error)
	Close() error
	// CPU returns the processor time of the run after Start has returned, or 0 if the run does not measure it. The time
	// includes all processes in the cage and the setup of the cage. For a warm cage it includes only the tool and the
	// processes that the tool waited for.
	CPU() time.Duration
	// Warm returns the steps of the warm helper that may serve the run, or nil if no helper serves it.
	Warm() []WarmStep
}

// DescribedRun is a [Run] that can tell a person what it would do, if no preview of the manifest does. The result must be
// the same for each plan of the same job, because the question contains it.
type DescribedRun interface {
	Run
	// Describe returns a command line with which a person can check the text, and the text, of several lines.
	Describe() (check []string, text string)
}

// ReachingRun is a [Run] on a machine that has a network of its own, which outlives the call.
type ReachingRun interface {
	Run
	// Reaches returns the places that the machine may reach, if the call decides about that.
	Reaches() []Endpoint
	// Connections returns the connections of the machine since the last call on it, after Start has returned. It returns
	// nil if there is nothing to report.
	Connections() *EgressReport
}

// WantingRun is a [Run] that needs credentials of the broker which no manifest can name, such as the key of the provider
// that the settings choose for a model. The result must be the same for each plan of the same job.
type WantingRun interface {
	Run
	Wants() []Want
}

// PlainRun is for embedding in a Run that does not measure its processor time and that no warm helper serves. A Run
// that wraps another one embeds that one instead.
type PlainRun struct{}

// CPU returns 0.
func (PlainRun) CPU() time.Duration { return 0 }

// Warm returns nil.
func (PlainRun) Warm() []WarmStep { return nil }

// idEncoding is Crockford's base32 alphabet in lower case. Identifiers stay sortable, easy to pronounce and safe in
// file names.
var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// newID returns 26 characters: 48 bits of Unix time in milliseconds, then 80 random bits.
func newID() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16)
	rand.Read(b[6:]) // never fails (crypto/rand)
	return idEncoding.EncodeToString(b[:])
}

// NewReceiptID and the functions below return new identifiers, ordered by time.
func NewReceiptID() ReceiptID   { return ReceiptID("r-" + newID()) }
func NewSessionID() SessionID   { return SessionID("s-" + newID()) }
func NewApprovalID() ApprovalID { return ApprovalID("a-" + newID()) }
func NewGrantID() GrantID       { return GrantID("g-" + newID()) }

// CageOwn reports whether every cage sets this variable itself.
func CageOwn(name string) bool {
	return name == "PATH" || name == "HOME" || name == "USER" || name == "TMPDIR"
}

// Loads reports whether a variable can influence the code that a program runs, the configuration that it uses, or the
// destination of its connections. See ld.so(8), bash(1), git(1), python(1), perlrun(1), ruby(1) and node(1).
func Loads(name string) bool {
	name = strings.ToUpper(name)
	for _, p := range loaderPrefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return slices.Contains(loaderNames, name)
}

var loaderPrefixes = []string{"LD_", "DYLD_", "GIT_", "PYTHON", "PERL", "RUBY", "NODE_", "NPM_", "BASH_", "GCONV_",
	"GLIBC_",
	"MALLOC_", "JAVA_", "_JAVA_", "JDK_", "MAVEN_", "GRADLE_", "GEM_", "BUNDLE_", "CARGO_", "RUST", "CGO_", "PIP_",
	"LUA_", "PHP",
	"DOTNET_", "CORECLR_", "COMPLUS_", "KUBE", "AWS_CONFIG", "AWS_SHARED_", "AWS_ENDPOINT", "CLOUDSDK_CONFIG",
	"CLOUDSDK_PYTHON",
	"AZURE_CONFIG", "DOCKER_", "HELM_", "TF_CLI_", "SSL_CERT_", "OPENSSL_", "SSH_", "BAILEY_", "XDG_", "LESS", "TERMINFO"}

var loaderNames = []string{"ENV", "IFS", "SHELL", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "CDPATH",
	"GLOBIGNORE", "EDITOR", "VISUAL",
	"PAGER", "MANPAGER", "BROWSER", "CLASSPATH", "LOCPATH", "NLSPATH", "HOSTALIASES", "RES_OPTIONS", "LOCALDOMAIN",
	"RESOLV_HOST_CONF",
	"TZDIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY", "DISPLAY", "DBUS_SESSION_BUS_ADDRESS",
	"CURL_CA_BUNDLE",
	"CURL_HOME", "REQUESTS_CA_BUNDLE", "GOFLAGS", "GOENV", "GOPROXY", "GOTOOLCHAIN", "GODEBUG", "GOROOT", "GOPATH",
	"MAKEFLAGS", "CC",
	"CXX", "TMP", "TEMP", "TERMCAP", "NETRC", "WGETRC"}

// Budget limits the resources that agents use, beyond the limits of a single call. A zero field means no limit.
type Budget struct {
	ID     string `json:"id"`
	Source string `json:"source"` // file:line
	// Since is the start of counting. Earlier calls do not count.
	Since time.Time `json:"since,omitzero"`
	// Capabilities and Agents select the calls that count. An empty list selects all.
	Capabilities []CapabilityID `json:"capabilities,omitempty"`
	Agents       []string       `json:"agents,omitempty"`
	// Separate counters: per session, per agent together with its person, per capability.
	Session    bool `json:"perSession,omitempty"`
	Agent      bool `json:"perAgent,omitempty"`
	Capability bool `json:"perCapability,omitempty"`
	// Within is the period that starts with the first counted call. After it, counting starts again. Zero means that
	// the period never ends.
	Within time.Duration `json:"within,omitempty"`

	Calls      int           `json:"calls,omitempty"`
	Concurrent int           `json:"concurrent,omitempty"` // number of calls at the same time
	Wall       time.Duration `json:"wall,omitempty"`       // run time of tools
	CPU        time.Duration `json:"cpu,omitempty"`        // as in [Run]
	Output     int64         `json:"output,omitempty"`     // bytes of tool output
	// Tokens of models, see [ModelUse.Tokens].
	InputTokens  int64 `json:"inputTokens,omitempty"`
	OutputTokens int64 `json:"outputTokens,omitempty"`
	MicroUSD     int64 `json:"microUsd,omitempty"` // price of models, in millionths of a US dollar
}

// SpentError is the cause of a refusal because a budget is used up.
type SpentError struct {
	Cause *Error
	Until time.Time // when counting starts again; zero: never, or when a running call ends
}

func (s *SpentError) Error() string { return s.Cause.Error() }

// Unwrap returns the error with its kind and hint.
func (s *SpentError) Unwrap() error { return s.Cause }

// SameCount reports whether two budgets count the same calls in the same way. It ignores their limits.
func (b Budget) SameCount(o Budget) bool {
	return b.ID == o.ID && b.Session == o.Session && b.Agent == o.Agent && b.Capability == o.Capability &&
		b.Within == o.Within &&
		slices.Equal(b.Capabilities, o.Capabilities) && slices.Equal(b.Agents, o.Agents)
}

// Counts reports whether the budget applies to a call.
func (b Budget) Counts(r Request) bool {
	return (len(b.Agents) == 0 || slices.Contains(b.Agents, r.Principal.Agent)) &&
		(len(b.Capabilities) == 0 || slices.Contains(b.Capabilities, r.Capability))
}
