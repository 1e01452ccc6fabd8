package fleet

import (
	"encoding/json"
	"time"

	"bailey"
)

// Asked is the body of an [ApprovalAsked]. An answer binds Text; the rest is for lists and for finding the people who
// may answer, and the gateway believes none of it when an answer comes.
type Asked struct {
	ID         bailey.ApprovalID   `json:"id"`
	Text       string              `json:"text"`
	Digest     string              `json:"digest"` // SHA-256 of Text, hex
	Agent      string              `json:"agent"`
	Person     string              `json:"person"`
	Capability bailey.CapabilityID `json:"capability"`
	Impact     string              `json:"impact"`
	Preview    string              `json:"preview,omitempty"`
	Rules      []AskedRule         `json:"rules"`
	Roles      []string            `json:"roles,omitempty"` // each approver must have all of them
	Count      int                 `json:"count"`           // of approvers
	Level      bailey.Level        `json:"level,omitempty"`
	// Pages means that the gateway accepts the answer of a passkey that was used on pages of the control plane itself.
	Pages   bool      `json:"pages,omitempty"`
	At      time.Time `json:"at"`
	Expires time.Time `json:"expires"`
}

// AskedRule is a rule that asks.
type AskedRule struct {
	ID     string `json:"id"`
	Reason string `json:"reason,omitempty"`
}

// Decided is the body of an [ApprovalDecided]: the question has ended, or it was granted.
type Decided struct {
	ID      bailey.ApprovalID `json:"id"`
	Granted bool              `json:"granted"`
	Reason  string            `json:"reason"`
}

// Answer is the body of an [ApprovalAnswer]. The gateway believes no grant without a signature over the text. A denial
// needs none, as on the gateway's machine.
type Answer struct {
	Question  bailey.ApprovalID `json:"question"`
	Digest    string            `json:"digest,omitempty"` // of the answered text
	Grant     bool              `json:"grant"`
	Signature string            `json:"signature,omitempty"` // SSHSIG, or the answer of a passkey
	Reason    string            `json:"reason,omitempty"`    // of a denial
	Person    string            `json:"person"`              // as the control plane knows them
}

// Orders is the body of a [Kill] and of an [Unkill]: all that the control plane has stopped on a gateway. A gateway
// ignores orders that are older than those it has.
type Orders struct {
	Revision uint64  `json:"revision"`
	Kills    []Order `json:"kills"`
}

// Order stops an agent, or every call.
type Order struct {
	ID     string    `json:"id"`
	Agent  string    `json:"agent,omitempty"` // "": every call
	Reason string    `json:"reason,omitempty"`
	Person string    `json:"person,omitempty"`
	At     time.Time `json:"at"`
}

// Bundle is the body of a [BundleOffer]: the files of a policy, with a signature over [policyfiles.BundleText]. The
// serial number is signed too, so that an older bundle cannot return.
type Bundle struct {
	Serial    uint64       `json:"serial"`
	Files     []BundleFile `json:"files"`
	Signature string       `json:"signature"` // SSHSIG
}

// BundleFile is a file of a policy.
type BundleFile struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// BundleResult is the body of a [BundleState], and the result of a [BundleOffer].
type BundleResult struct {
	Serial  uint64   `json:"serial"`
	Digest  string   `json:"digest,omitempty"` // of the files
	Applied bool     `json:"applied"`
	Signer  string   `json:"signer,omitempty"`
	Changes []string `json:"changes,omitempty"` // of what the rules permit, compared with the policy before
	Fault   string   `json:"fault,omitempty"`
	Hint    string   `json:"hint,omitempty"`
}

// CallOrder is the body of a [Call]: a person of the control plane makes a call on a gateway, which passes the gate
// there. The gateway has only the word of the control plane for the person.
type CallOrder struct {
	Operation  string              `json:"operation"` // the id at the control plane
	Capability bailey.CapabilityID `json:"capability"`
	Input      map[string]any      `json:"input"`
	Timeout    time.Duration       `json:"timeout,omitempty"` // nanoseconds; of the tool
	By         CallPerson          `json:"by"`
}

// CallPerson is the person who makes a call.
type CallPerson struct {
	Account      string `json:"account"` // the id
	Email        string `json:"email"`
	Name         string `json:"name,omitempty"`
	Role         string `json:"role"`         // in the organisation
	Organisation string `json:"organisation"` // the id
}

// CallBegin is the body of a [CallBegun].
type CallBegin struct {
	Operation string `json:"operation"`
}

// CallResult is the result of a [Call]: what the gate says. A call that was refused or failed has an error.
type CallResult struct {
	Receipt    bailey.ReceiptID  `json:"receipt,omitempty"`
	Status     bailey.Status     `json:"status"`
	Executed   bool              `json:"executed"`
	ExitCode   int               `json:"exitCode"`
	Stdout     string            `json:"stdout,omitempty"` // redacted
	Stderr     string            `json:"stderr,omitempty"`
	Truncated  bool              `json:"truncated,omitempty"` // of the output the beginning is there
	Structured json.RawMessage   `json:"structured,omitempty"`
	Approval   bailey.ApprovalID `json:"approval,omitempty"`
	Error      string            `json:"error,omitempty"` // its kind
	Message    string            `json:"message,omitempty"`
	Hint       string            `json:"hint,omitempty"`
}

// ResourceReport is the body of a [HostResources]: what the control plane may call, and what is there for it.
type ResourceReport struct {
	Calls []bailey.CapabilityID `json:"calls"`
	// Capacity is that of the host of sandboxes, and Free what a new sandbox may have now. Both are zero if the control
	// plane may not create sandboxes.
	Capacity    Capacity       `json:"capacity,omitzero"`
	Free        Capacity       `json:"free,omitzero"`
	Accelerator string         `json:"accelerator,omitempty"`
	Images      []string       `json:"images,omitempty"`
	Networks    []string       `json:"networks,omitempty"`
	Sources     []SourceReport `json:"sources,omitempty"` // if the control plane may look at source hosts
}

// SourceReport is a source host of a gateway.
type SourceReport struct {
	Name     string   `json:"name"`
	Labels   []string `json:"labels,omitempty"`
	System   string   `json:"system,omitempty"`
	Prepared bool     `json:"prepared"`
}

// TeamBudgets is the body of a [Budget]: what requests to models may cost in the organisation, in addition to the
// budgets of the gateway's policy. A gateway ignores those that are older than those it has.
type TeamBudgets struct {
	Revision uint64       `json:"revision"`
	Budgets  []TeamBudget `json:"budgets"`
}

// Periods of a budget, UTC.
const (
	DayPeriod   = "day"
	MonthPeriod = "month"
)

// TeamBudget bounds the cost of a period, on all gateways together. A limit of 0 is none.
type TeamBudget struct {
	ID           string    `json:"id"`
	Agent        string    `json:"agent,omitempty"` // "": all together
	Period       string    `json:"period"`
	InputTokens  int64     `json:"inputTokens,omitempty"`
	OutputTokens int64     `json:"outputTokens,omitempty"`
	MicroUSD     int64     `json:"microUsd,omitempty"`
	Since        time.Time `json:"since"`     // the beginning of the period that Elsewhere is about
	Elsewhere    SpentSum  `json:"elsewhere"` // what other gateways have spent in it
}

// SpentSum is a sum of costs.
type SpentSum struct {
	InputTokens  int64 `json:"inputTokens,omitempty"`
	OutputTokens int64 `json:"outputTokens,omitempty"`
	MicroUSD     int64 `json:"microUsd,omitempty"`
}

// PeriodStart returns the beginning of the period at a time, or false if there is no such period.
func PeriodStart(period string, at time.Time) (time.Time, bool) {
	at = at.UTC()
	switch period {
	case DayPeriod:
		return time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC), true
	case MonthPeriod:
		return time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC), true
	}
	return time.Time{}, false
}

// Policy is the body of a [PolicyState]: the rules that a gateway uses, when it connects and after each change.
type Policy struct {
	Digest  string       `json:"digest"`           // of the files, as in a [BundleResult]; "" without applied files
	Rules   []PolicyRule `json:"rules"`            // at most MaxPolicyRules
	Count   int          `json:"count"`            // of all rules
	Bundle  uint64       `json:"bundle,omitempty"` // the serial number, if the policy came in a bundle
	Applied time.Time    `json:"applied,omitzero"`
	Fault   string       `json:"fault,omitempty"` // why nothing is allowed
}

// MaxPolicyRules is how many rules a gateway lists, and MaxPolicyText how many bytes the texts of one may have.
const (
	MaxPolicyRules = 200
	MaxPolicyText  = 200
)

// PolicyRule is a rule that a gateway uses.
type PolicyRule struct {
	ID     string `json:"id"`
	Effect string `json:"effect"` // permit, forbid, ask
	Reason string `json:"reason,omitempty"`
	Source string `json:"source"` // file:line
}
