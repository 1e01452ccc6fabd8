package apitype

import (
	"cmp"
	"fmt"
	"strings"

	"bailey/internal/policy"
	"bailey/internal/terminal"
)

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
	Meaning       policy.Difference `json:"meaning"`
	BudgetChanges []string          `json:"budgetChanges"`
	Text          string            `json:"text,omitempty"` // the difference, line by line
	Signer        *PolicySigner     `json:"signer,omitempty"`
	Applied       AppliedPolicy     `json:"applied"` // the policy applied before
}

func (p Proposed) Summary() string {
	var b strings.Builder
	from := "the policy that is built in"
	if p.Dir != "" {
		from = terminal.CutLine(p.Dir)
	}
	fmt.Fprintf(&b, "%s: %s, %s, %s\n\n", from, Counts(p.Rules, "rule"), Counts(p.Tests, "test")+" passed", Counts(p.Budgets, "budget"))
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
