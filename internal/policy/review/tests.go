package review

import (
	"fmt"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/policy"
)

// Fit checks and types an input according to the manifest of the capability. It returns whether the call would open a
// place for writing, and its egress.
type Fit func(id bailey.CapabilityID, input map[string]any) (fitted map[string]any, writes bool, egress []string,
	err error)

// Failure is a rule test that failed.
type Failure struct {
	Source        string          `json:"source"` // file:line of the test
	Name          string          `json:"name"`
	Expected      string          `json:"expected"` // allow, ask, deny
	ExpectedRules []bailey.RuleID `json:"expectedRules,omitempty"`
	Got           string          `json:"got"`    // allow, ask, deny; error if the test could not run
	Rules         []bailey.Rule   `json:"rules"`  // the rules that decided
	Reason        string          `json:"reason"` // of the decision, or why there is none
}

// String formats the failure for a terminal.
func (f Failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: expected %s", f.Source, f.Name, f.Expected)
	if f.ExpectedRules != nil {
		fmt.Fprintf(&b, " by %s", f.expectedRuleNames())
	}
	fmt.Fprintf(&b, ", got %s", f.Got)
	if f.Reason != "" {
		fmt.Fprintf(&b, "\n  %s", policy.ReplaceHidden(f.Reason))
	}
	for _, r := range f.Rules {
		fmt.Fprintf(&b, "\n  by %s at %s", r.ID, r.Source)
	}
	return b.String()
}

func (f Failure) expectedRuleNames() string {
	if len(f.ExpectedRules) == 0 {
		return "no rule"
	}
	var ids []string
	for _, id := range f.ExpectedRules {
		ids = append(ids, string(id))
	}
	return strings.Join(ids, ", ")
}

// unmet is the result of a test that could not run. It never equals an expected result.
const unmet = "error"

// RunTests runs rule tests and returns those that fail. If fit is nil, inputs are used as written. A test that names an
// unknown action, grant or rule fails whatever it expects, because it would prove nothing.
func RunTests(e *policy.Engine, tests []policy.Test, fit Fit) []Failure {
	var failed []Failure
	for _, t := range tests {
		f := Failure{Source: t.Source, Name: t.Name, Expected: t.Expect.String(), ExpectedRules: t.Rules,
			Rules: []bailey.Rule{}}
		d, err := runTest(e, t, fit)
		switch {
		case err != nil:
			f.Got, f.Reason = unmet, err.Error()
		case d.Effect == t.Expect && (t.Rules == nil || sameRules(t.Rules, d.Rules)):
			continue
		default:
			f.Got, f.Reason = d.Effect.String(), d.Reason
			f.Rules = append(f.Rules, d.Rules...)
		}
		failed = append(failed, f)
	}
	return failed
}

func runTest(e *policy.Engine, t policy.Test, fit Fit) (bailey.Decision, error) {
	r := t.Request
	action, ok := e.Action(r.Capability)
	if !ok {
		return bailey.Decision{}, fmt.Errorf("there is no action %q", r.Capability)
	}
	for _, id := range r.Approvals {
		if rule := e.Rule(id); rule == nil || !rule.Asks {
			return bailey.Decision{}, fmt.Errorf("approvals names %q, but no asking rule has that @id", id)
		}
	}
	for _, id := range t.Rules {
		if e.Rule(id) == nil {
			return bailey.Decision{}, fmt.Errorf("rules names %q, but no rule has that @id", id)
		}
	}
	if !t.Waives {
		r.Waivers = action.Waivers
	}
	if fit != nil {
		var err error
		var egress []string
		if r.Input, r.Writes, egress, err = fit(r.Capability, r.Input); err != nil {
			return bailey.Decision{}, fmt.Errorf("the call is refused before any rule is evaluated: %w", err)
		}
		if !t.Reaches {
			r.Egress = egress
		}
	}
	if t.Writes != nil {
		r.Writes = *t.Writes
	}
	return e.Decide(r), nil
}

// sameRules reports whether two sets of rules are equal.
func sameRules(ids []bailey.RuleID, rules []bailey.Rule) bool {
	return !slices.ContainsFunc(rules, func(r bailey.Rule) bool { return !slices.Contains(ids, r.ID) }) &&
		!slices.ContainsFunc(ids, func(id bailey.RuleID) bool {
			return !slices.ContainsFunc(rules, func(r bailey.Rule) bool { return r.ID == id })
		})
}
