package apitype

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/policy/review"
	"bailey/internal/receipts"
	"bailey/internal/terminal"
)

// PolicyRequest asks for the effect of a policy, or for its use.
type PolicyRequest struct {
	Dir       string `json:"dir,omitempty"`       // absolute; "" for the built-in policy
	Signature string `json:"signature,omitempty"` // a detached SSH signature of the policy

	// Only for the use: the digest of the files that were shown, and that of the applied policy with which they were
	// compared, "" if none was applied.
	Digest string `json:"digest,omitempty"`
	Base   string `json:"base,omitempty"`
}

// PolicyName names a policy that was applied.
type PolicyName struct {
	Digest string `json:"digest,omitempty"` // the beginning of the digest of its files or its rules; "": the policy in force
}

// Proposed is a policy that could be applied, compared with the policy in force.
type Proposed struct {
	OK            bool              `json:"ok"`
	Changed       bool              `json:"changed"` // it was applied
	Dir           string            `json:"dir,omitempty"`
	Digest        string            `json:"digest"` // of its files
	Policy        string            `json:"policy"` // digest of its rules
	Rules         int               `json:"rules"`
	Tests         int               `json:"tests"` // number that passed
	Budgets       int               `json:"budgets"`
	Differs       bool              `json:"differs"` // from the policy in force
	Meaning       review.Difference `json:"meaning"`
	BudgetChanges []string          `json:"budgetChanges"`
	Text          string            `json:"text,omitempty"` // the difference, line by line
	Signer        *PolicySigner     `json:"signer,omitempty"`
	Applied       AppliedPolicy     `json:"applied"` // the policy applied before
}

// Summary returns the lines that a person must see before the policy is applied: its size, and the difference in
// meaning and in text.
func (p Proposed) Summary() string {
	var b strings.Builder
	from := "the built-in policy"
	if p.Dir != "" {
		from = terminal.CutLine(p.Dir)
	}
	fmt.Fprintf(&b, "%s: %s, %s, %s\n\n", from, Counts(p.Rules, "rule"), Counts(p.Tests, "test")+" passed",
		Counts(p.Budgets, "budget"))
	meaning := p.Meaning.String()
	if changes := strings.Join(p.BudgetChanges, "\n"); changes != "" && p.Meaning.None() {
		meaning = changes
	} else if changes != "" {
		meaning = strings.TrimRight(meaning, "\n") + "\n\n" + changes
	}
	fmt.Fprintf(&b, "in meaning\n%s\nin text\n%s\n", terminal.Indented(meaning), cmp.Or(p.Text, "  nothing\n"))
	return b.String()
}

// Counts returns a number with its noun.
func Counts(n int, noun string) string {
	if stem, ok := strings.CutSuffix(noun, "ty"); ok && n != 1 {
		noun = stem + "ties"
	} else if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// List joins names, at most five of them.
func List(names []string) string {
	const shown = 5
	if len(names) > shown {
		return strings.Join(names[:shown], ", ") + fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return strings.Join(names, ", ")
}

// Reconsidered is a past call with its decision, and the decision of the current policy about the same call.
type Reconsidered struct {
	Receipt    bailey.ReceiptID    `json:"receipt"`
	Capability bailey.CapabilityID `json:"capability"`
	StartedAt  time.Time           `json:"startedAt"`
	DryRun     bool                `json:"dryRun,omitempty"`
	Then       DecidedThen         `json:"then"`
	Now        *review.Explanation `json:"now"`                 // null if it cannot be decided again
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
	fmt.Fprintf(&b, "%s: %s%s, %s\n\nthen: %s", terminal.Shown(string(r.Receipt)), terminal.Shown(string(r.Capability)),
		DryRun(r.DryRun), r.StartedAt.Local().Format(time.DateTime), r.Then)
	if r.Now == nil {
		fmt.Fprintf(&b, "\n\nnow: unknown: %s", terminal.Shown(r.Undecided))
	} else {
		fmt.Fprintf(&b, "\n\nnow: %s", r.Now)
	}
	for _, m := range r.Marks {
		fmt.Fprintf(&b, "\nnote: %s", terminal.Shown(m))
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
		fmt.Fprintf(&b, "%s, before any rule was evaluated", terminal.Shown(d.Decision))
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

// RuleAdded is the policy in force with one more rule. Nothing is written yet.
type RuleAdded struct {
	review.Written
	Base  string     `json:"base"` // digest of the files in force; empty for the built-in policy
	Dir   string     `json:"dir"`  // of the files in force; empty for the built-in policy
	Files []KeptFile `json:"files"`
}

// PolicyText is an applied policy with the text of its files.
type PolicyText struct {
	AppliedPolicy
	Files []KeptFile `json:"files"`
}

// PolicyEvent is the kind of the ledger entry for a policy that took effect. Its data is an [appliedPolicy].
const PolicyEvent = "policy.apply"

// AppliedPolicy is the policy that an operator applied last. The zero value is the built-in starter policy.
type AppliedPolicy struct {
	Digest   string            `json:"digest"`        // of all its files, see policyFiles
	Policy   string            `json:"policy"`        // digest of the rules, as in receipts
	Dir      string            `json:"dir,omitempty"` // where they were
	Rules    int               `json:"rules"`         // number of rules
	Tests    int               `json:"tests"`         // number that passed
	Budgets  int               `json:"budgets"`
	Signer   *PolicySigner     `json:"signer,omitempty"` // signer of the digest
	Bundle   uint64            `json:"bundle,omitempty"` // the highest serial number of the bundles that were applied
	At       time.Time         `json:"at,omitzero"`
	Since    []BudgetSince     `json:"budgetsSince,omitempty"`
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// BudgetSince is the time at which a budget began to count in its current way.
type BudgetSince struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
}

// PolicySigner is the owner of the SSH key that signed a policy.
type PolicySigner struct {
	Name  string `json:"name"`
	Key   string `json:"key"`   // its fingerprint, SHA256:…
	Touch bool   `json:"touch"` // it was touched
}

// KeptFile is one file of a policy, as the home stores it.
type KeptFile struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

func (s Status) policyText() string {
	words := s.Policy
	switch {
	case s.Fault != "":
		return "NOTHING IS ALLOWED: " + terminal.Shown(s.Fault)
	case s.Applied == nil || s.Applied.Dir == "":
		words += ", built in"
	default:
		words += fmt.Sprintf(", %s of %s, applied %s by %s", Counts(s.Applied.Rules, "rule"),
			terminal.Shown(s.Applied.Dir), s.Applied.At.Format(time.RFC3339), terminal.TableCell(s.Applied.Person))
	}
	if s.Applied != nil && s.Applied.Signer != nil {
		words += ", signed by " + terminal.TableCell(s.Applied.Signer.Name)
	}
	return words
}
