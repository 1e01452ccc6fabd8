package bailey

import (
	"encoding/json"
	"time"
)

// Status is the final state of a call.
type Status string

const (
	OK          Status = "ok"
	Refused     Status = "denied"
	Pending     Status = "pending"     // a question is open
	Failed      Status = "failed"      // for example invalid input, a failed tool or a missing isolation layer
	Interrupted Status = "interrupted" // the gateway stopped while the call was open
	Killed      Status = "killed"      // by the kill switch, or because the caller disconnected
)

// Intent is the first half of a receipt. It is durable before anything else happens.
type Intent struct {
	Receipt      ReceiptID       `json:"receipt"`
	Capability   CapabilityID    `json:"capability"`
	Input        json.RawMessage `json:"input,omitempty"`      // redacted; absent if larger than [InlineCap]
	InputBytes   int             `json:"inputBytes,omitempty"` // set if Input is absent
	InputBody    *Body           `json:"inputBody,omitempty"`  // set if Input is absent; redacted
	Agent        string          `json:"agent"`
	Person       string          `json:"person,omitempty"`
	Roles        []string        `json:"roles,omitempty"`
	Organisation string          `json:"organisation,omitempty"`
	Token        string          `json:"token,omitempty"` // ID of the token that the agent presented
	Host         string          `json:"host"`
	Session      SessionID       `json:"session"`
	Unattended   bool            `json:"unattended,omitempty"`
	Door         string          `json:"door"`
	Client       string          `json:"client,omitempty"`
	Dir          string          `json:"dir,omitempty"`
	DryRun       bool            `json:"dryRun,omitempty"`
	Within       ReceiptID       `json:"within,omitempty"` // receipt of the workflow, if the call is a step
	Step         string          `json:"step,omitempty"`
	StartedAt    time.Time       `json:"startedAt"`
}

// InlineCap is the maximum size in bytes of arguments that are stored in the ledger itself.
const InlineCap = 4 << 10

// Outcome is the second half of a receipt. It is durable before the caller gets the result.
type Outcome struct {
	Receipt ReceiptID `json:"receipt"`
	Status  Status    `json:"outcome"`
	// Decision is allow, ask or deny, or "" if no decision was made. If it is deny and PolicyDigest is empty, a
	// built-in check refused the call before policy was asked.
	Decision       string   `json:"decision"`
	Rules          []Rule   `json:"rules,omitempty"`
	Reason         string   `json:"reason,omitempty"`
	Executed       *bool    `json:"executed"` // whether the tool was started; null if unknown
	ManifestDigest string   `json:"manifestDigest,omitempty"`
	Dev            bool     `json:"dev,omitempty"` // the pack is not signed
	PolicyDigest   string   `json:"policyDigest,omitempty"`
	Profile        string   `json:"profile,omitempty"`     // active profiles, joined by +
	Environment    string   `json:"environment,omitempty"` // environment of the profile
	Argv           []string `json:"argv,omitempty"`        // redacted; absent if larger than [InlineCap]
	EnvNames       []string `json:"envNames,omitempty"`
	Cwd            string   `json:"cwd,omitempty"`
	Paths          []string `json:"paths,omitempty"`
	Cage           *Cage    `json:"cage,omitempty"` // null if there was no cage, never a placeholder
	ExitCode       *int     `json:"exitCode,omitempty"`
	TimedOut       bool     `json:"timedOut,omitempty"`
	RanMillis      int64    `json:"ranMs,omitempty"`       // run time of the tool
	CPUMillis      int64    `json:"cpuMs,omitempty"`       // processor time of the run, as in [Run]
	StdoutBytes    int64    `json:"stdoutBytes,omitempty"` // bytes that the tool wrote, before limit and redaction
	StderrBytes    int64    `json:"stderrBytes,omitempty"`
	StdoutBody     *Body    `json:"stdoutBody,omitempty"` // as delivered to the caller, redacted
	StderrBody     *Body    `json:"stderrBody,omitempty"`
	InputBody      *Body    `json:"inputBody,omitempty"` // only if the body of the intent was not stored
	Truncated      bool     `json:"truncated,omitempty"`
	Redactions     int      `json:"redactions,omitempty"`
	Restored       []string `json:"restored,omitempty"` // categories of secrets that were restored in the input
	Leases         []string `json:"leases,omitempty"`   // IDs of the leases
	// host:port of the destinations of the cage network, redacted
	Reaches []string `json:"reaches,omitempty"`
	// network activity; null if the tool did not run or the cage had no network
	Egress     *EgressReport `json:"egress,omitempty"`
	Approval   ApprovalID    `json:"approval,omitempty"`   // the answered question, which may be from an earlier call
	Standing   []GrantID     `json:"standing,omitempty"`   // standing grants that were used
	Hooks      []AskedHook   `json:"hooks,omitempty"`      // hooks that were asked, in order
	HooksAsked int           `json:"hooksAsked,omitempty"` // their number, if Hooks omits some
	// the call at which the pre hooks were asked, if this call was pending
	HooksAt ReceiptID  `json:"hooksAt,omitempty"`
	Steps   []StepDone `json:"steps,omitempty"` // for a workflow: the steps that were reached
	Model   *ModelUse  `json:"model,omitempty"` // for a request to a model
	EndedAt time.Time  `json:"endedAt"`
}

// StepDone is the result of a workflow step.
type StepDone struct {
	Step    string    `json:"step"`
	Receipt ReceiptID `json:"receipt,omitempty"` // "" if the call could not be made
	Status  Status    `json:"outcome"`
}

// AskedHook is a hook that was asked about a call.
type AskedHook struct {
	Event   string `json:"event"`
	Hook    int    `json:"hook"`    // position in hooks.json, from 1
	Program string `json:"program"` // as written in hooks.json
	// isolation of the hook: FullyEnforced, PartiallyEnforced, NotEnforced, PlatformUnsupported, Disabled
	Status string `json:"status"`
	Effect string `json:"effect"` // kept, changed, failed, blocked
	Reason string `json:"reason,omitempty"`
	Millis int64  `json:"ms"`
}

// Body is a redacted text that is stored outside the ledger for a limited time. The ledger contains its length and a
// salted commitment. The commitment proves that a text is the original. After the text is deleted, it cannot be found
// by guessing.
type Body struct {
	Length     int    `json:"length"`               // bytes
	Commitment string `json:"commitment,omitempty"` // computed by package audit
	State      string `json:"body,omitempty"`       // [NotStored] or ""
	Bytes      []byte `json:"-"`                    // the text, until it is stored
}

// NotStored marks a body that was lost before it was stored.
const NotStored = "not stored"

// Receipt is an intent with its outcome, as a reader sees them. Outcome is nil while the call is open.
type Receipt struct {
	Seq     uint64   `json:"seq"` // number of the ledger entry of the intent
	Intent  Intent   `json:"intent"`
	Outcome *Outcome `json:"outcome"`
}

// Result is the result that the caller gets.
type Result struct {
	Receipt    ReceiptID
	Status     Status
	Decision   Decision
	Stdout     []byte
	Stderr     []byte
	ExitCode   int
	Truncated  bool
	Approval   ApprovalID
	DryRun     bool
	Executed   bool
	NotDurable bool  // the outcome could not be written
	Cage       *Cage // the cage of the run, or the one that a dry run would have
	Argv       []string
	Refused    []string        // refused network connections, one line each
	Notices    []string        // messages and warnings of hooks for the person
	Structured json.RawMessage // stdout as JSON, if the manifest promises JSON and stdout is valid
	Promised   bool            // the manifest promises JSON
	Narrow     string          // for truncated output: how to get less at once, if the manifest says so
	Err        error           // reason if the status is not OK; has kind and hint
}
