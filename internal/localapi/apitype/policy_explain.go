package apitype

import (
	"fmt"
	"strings"
	"time"

	"bailey"
	"bailey/internal/policy"
	"bailey/internal/receipts"
	"bailey/internal/terminal"
)

// Reconsidered is a past call with its decision, and the decision of the current policy about the same call.
type Reconsidered struct {
	Receipt    bailey.ReceiptID    `json:"receipt"`
	Capability bailey.CapabilityID `json:"capability"`
	StartedAt  time.Time           `json:"startedAt"`
	DryRun     bool                `json:"dryRun,omitempty"`
	Then       DecidedThen         `json:"then"`
	Now        *policy.Explanation `json:"now"`                 // null if it cannot be decided again
	Undecided  string              `json:"undecided,omitempty"` // the reason in that case
	Hidden     []string            `json:"hidden,omitempty"`    // parts of the call that are redacted in the receipt
	Marks      []string            `json:"marks,omitempty"`     // differences that limit the result
}

// DecidedThen is the decision according to the receipt.
type DecidedThen struct {
	Outcome  bailey.Status     `json:"outcome"`
	Decision string            `json:"decision"` // first decision of the policy; "" if there was no decision
	Rules    []bailey.Rule     `json:"rules"`
	Reason   string            `json:"reason,omitempty"`
	Approval bailey.ApprovalID `json:"approval,omitempty"`
	Policy   string            `json:"policyDigest,omitempty"`
}

func (r Reconsidered) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s%s, %s\n\nthen: %s", terminal.Shown(string(r.Receipt)), terminal.Shown(string(r.Capability)), DryRun(r.DryRun), r.StartedAt.Local().Format(time.DateTime), r.Then)
	if r.Now == nil {
		fmt.Fprintf(&b, "\n\nnow: nobody can tell: %s", terminal.Shown(r.Undecided))
	} else {
		fmt.Fprintf(&b, "\n\nnow: %s", r.Now)
	}
	for _, m := range r.Marks {
		fmt.Fprintf(&b, "\nto bear in mind: %s", terminal.Shown(m))
	}
	if len(r.Hidden) > 0 {
		fmt.Fprintf(&b, "\nhidden in the receipt: %s", terminal.Shown(strings.Join(r.Hidden, ", ")))
	}
	return b.String()
}

func (d DecidedThen) String() string {
	var b strings.Builder
	switch {
	case d.Outcome == receipts.Open:
		return "nothing yet; the call is open"
	case d.Decision == "":
		fmt.Fprintf(&b, "nothing was decided; it ended %s", d.Outcome)
	case d.Policy == "":
		fmt.Fprintf(&b, "%s, before any rule was asked", terminal.Shown(d.Decision))
	case d.Outcome == bailey.Refused && d.Decision == bailey.Allow.String():
		fmt.Fprintf(&b, "denied, though %s allowed it", terminal.Shown(RuleNames(d.Rules)))
	case len(d.Rules) == 0:
		fmt.Fprintf(&b, "%s, by no rule", terminal.Shown(d.Decision))
	default:
		fmt.Fprintf(&b, "%s by %s", terminal.Shown(d.Decision), terminal.Shown(RuleNames(d.Rules)))
	}
	if d.Approval != "" {
		fmt.Fprintf(&b, ", approval %s, ended %s", terminal.Shown(string(d.Approval)), d.Outcome)
	}
	if d.Reason != "" {
		fmt.Fprintf(&b, "\n  %s", terminal.Shown(d.Reason))
	}
	if d.Policy != "" {
		fmt.Fprintf(&b, "\n  policy %.12s", terminal.Shown(d.Policy))
	}
	return b.String()
}
