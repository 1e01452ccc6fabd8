package bailey

import (
	"encoding/json"
	"time"
)

// Status is how a call ended.
type Status string

const (
	OK          Status = "ok"
	Refused     Status = "denied"
	Pending     Status = "pending"     // a question is open
	Failed      Status = "failed"      // bad input, a failing tool, a missing layer
	Interrupted Status = "interrupted" // the gateway ended while the call was open
	Killed      Status = "killed"      // the kill switch, or the caller went away
)

// Intent is the first half of a receipt, durable before anything else happens.
type Intent struct {
	Receipt      ReceiptID       `json:"receipt"`
	Capability   CapabilityID    `json:"capability"`
	Input        json.RawMessage `json:"input,omitempty"`      // redacted; absent when over [InlineCap]
	InputBytes   int             `json:"inputBytes,omitempty"` // set when Input is absent
	InputBody    *Body           `json:"inputBody,omitempty"`  // then, redacted
	Agent        string          `json:"agent"`
	Person       string          `json:"person,omitempty"`
	Roles        []string        `json:"roles,omitempty"`
	Organisation string          `json:"organisation,omitempty"`
	Token        string          `json:"token,omitempty"` // the id of the one that the agent showed
	Host         string          `json:"host"`
	Session      SessionID       `json:"session"`
	Unattended   bool            `json:"unattended,omitempty"`
	Door         string          `json:"door"`
	Client       string          `json:"client,omitempty"`
	Dir          string          `json:"dir,omitempty"`
	DryRun       bool            `json:"dryRun,omitempty"`
	Within       ReceiptID       `json:"within,omitempty"` // of the workflow of which the call is a step
	Step         string          `json:"step,omitempty"`
	StartedAt    time.Time       `json:"startedAt"`
}

// InlineCap is the size in bytes up to which arguments stand in the ledger themselves.
const InlineCap = 4 << 10

// Outcome is the second half of a receipt, durable before the caller sees the result.
type Outcome struct {
	Receipt        ReceiptID     `json:"receipt"`
	Status         Status        `json:"outcome"`
	Decision       string        `json:"decision"` // allow, ask, deny; "" when it never came to one. Denied without PolicyDigest: a wall did, before policy
	Rules          []Rule        `json:"rules,omitempty"`
	Reason         string        `json:"reason,omitempty"`
	Executed       *bool         `json:"executed"` // the tool was started; null when nobody knows
	ManifestDigest string        `json:"manifestDigest,omitempty"`
	Dev            bool          `json:"dev,omitempty"` // of a pack that nobody signed
	PolicyDigest   string        `json:"policyDigest,omitempty"`
	Profile        string        `json:"profile,omitempty"`     // in use, joined by +
	Environment    string        `json:"environment,omitempty"` // that it names
	Argv           []string      `json:"argv,omitempty"`        // redacted; absent when over [InlineCap]
	EnvNames       []string      `json:"envNames,omitempty"`
	Cwd            string        `json:"cwd,omitempty"`
	Paths          []string      `json:"paths,omitempty"`
	Cage           *Cage         `json:"cage,omitempty"` // null where there was none, never a placeholder
	ExitCode       *int          `json:"exitCode,omitempty"`
	TimedOut       bool          `json:"timedOut,omitempty"`
	RanMillis      int64         `json:"ranMs,omitempty"`       // how long the tool ran
	CPUMillis      int64         `json:"cpuMs,omitempty"`       // processor time of the run, as [MeteredRun] has it
	StdoutBytes    int64         `json:"stdoutBytes,omitempty"` // as the tool wrote them, before cap and redaction
	StderrBytes    int64         `json:"stderrBytes,omitempty"`
	StdoutBody     *Body         `json:"stdoutBody,omitempty"` // as the caller got it, redacted
	StderrBody     *Body         `json:"stderrBody,omitempty"`
	InputBody      *Body         `json:"inputBody,omitempty"` // only where the intent's was not stored
	Truncated      bool          `json:"truncated,omitempty"`
	Redactions     int           `json:"redactions,omitempty"`
	Restored       []string      `json:"restored,omitempty"`   // categories of secrets that the input was given back
	Leases         []string      `json:"leases,omitempty"`     // mint ids
	Reaches        []string      `json:"reaches,omitempty"`    // host:port of what its cage's network leads to, redacted
	Egress         *EgressReport `json:"egress,omitempty"`     // what it did there; null where it did not run, or the cage had no network
	Approval       ApprovalID    `json:"approval,omitempty"`   // the question that was answered, which may be an earlier call's
	Standing       []GrantID     `json:"standing,omitempty"`   // by grants that stand
	Hooks          []AskedHook   `json:"hooks,omitempty"`      // that were asked, in their order
	HooksAsked     int           `json:"hooksAsked,omitempty"` // how many, where Hooks leaves some out
	HooksAt        ReceiptID     `json:"hooksAt,omitempty"`    // the call at which those before it were asked, where this one was parked
	Steps          []StepDone    `json:"steps,omitempty"`      // of a workflow, those that were come to
	EndedAt        time.Time     `json:"endedAt"`
}

// StepDone is what became of a step of a workflow.
type StepDone struct {
	Step    string    `json:"step"`
	Receipt ReceiptID `json:"receipt,omitempty"` // "" where the call could not be made
	Status  Status    `json:"outcome"`
}

// AskedHook is a hook that was asked about a call.
type AskedHook struct {
	Event   string `json:"event"`
	Hook    int    `json:"hook"`    // its place in hooks.json, from 1
	Program string `json:"program"` // as that has it
	Status  string `json:"status"`  // what held it: FullyEnforced, PartiallyEnforced, NotEnforced, PlatformUnsupported, Disabled
	Effect  string `json:"effect"`  // kept, changed, failed, blocked
	Reason  string `json:"reason,omitempty"`
	Millis  int64  `json:"ms"`
}

// Body is a text that is kept beside the ledger for a while, redacted. The ledger holds how long it is and a salted
// commitment to it, so that who has the text can show that it is the one, and when it is gone nobody can guess it.
type Body struct {
	Length     int    `json:"length"`               // in bytes
	Commitment string `json:"commitment,omitempty"` // as package audit computes it
	State      string `json:"body,omitempty"`       // [NotStored], or nothing
	Bytes      []byte `json:"-"`                    // on its way to where it is kept
}

// NotStored says of a body that it was lost before it could be kept.
const NotStored = "not stored"

// Receipt is an intent and its outcome as a reader sees them. Outcome is nil while the call is open.
type Receipt struct {
	Seq     uint64   `json:"seq"` // of the intent's entry
	Intent  Intent   `json:"intent"`
	Outcome *Outcome `json:"outcome"`
}

// Result is what the caller learns.
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
	NotDurable bool  // executed, but the outcome could not be written
	Cage       *Cage // what held, or for a dry run would hold
	Argv       []string
	Refused    []string        // what its egress was refused, a line each
	Structured json.RawMessage // stdout once more, where the manifest promises JSON and it is what was promised
	Promised   bool            // the manifest promises JSON
	Narrow     string          // of an output that was cut: how to have less at once, where the manifest says
	Err        error           // why it is not ok; carries kind and hint
}
