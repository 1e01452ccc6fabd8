package apitype

import (
	"fmt"
	"time"

	"bailey/internal/localapi"
	"bailey/internal/terminal"
)

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
		words += fmt.Sprintf(", %s of %s, applied %s by %s", Counts(s.Applied.Rules, "rule"), terminal.Shown(s.Applied.Dir), s.Applied.At.Format(time.RFC3339), terminal.TableCell(s.Applied.Person))
	}
	if s.Applied != nil && s.Applied.Signer != nil {
		words += ", signed by " + terminal.TableCell(s.Applied.Signer.Name)
	}
	return words
}
