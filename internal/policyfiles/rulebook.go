package policyfiles

import (
	"fmt"
	"strings"

	"bailey"
	"bailey/internal/policy"
	"bailey/pack"
)

// Edition is a policy that was loaded completely.
type Edition struct {
	Files   Files
	catalog *pack.Catalog // the catalog whose actions engine knows
	Engine  *policy.Engine
	Budgets []bailey.Budget
	Tests   int
	Fault   error // why nothing is allowed
}

func Load(f Files, catalog *pack.Catalog, acts []policy.Action) (e Edition, err error) {
	e.Files, e.catalog = f, catalog
	if e.Engine, err = policy.Load(policy.Config{Sources: f.Rules, Actions: acts}); err != nil {
		return e, err
	}
	for _, s := range f.Budgets {
		if e.Budgets, err = e.Engine.Budgets(s); err != nil {
			return e, err
		}
	}
	var tests []policy.Test
	for _, s := range f.Tests {
		list, err := policy.ParseTests(s)
		if err != nil {
			return e, err
		}
		tests = append(tests, list...)
	}
	e.Tests = len(tests)
	return e, failed(e.Engine.Test(tests, fitting(catalog)))
}

// fitting checks the input of a test like that of a call.
func fitting(catalog *pack.Catalog) policy.Fit {
	return func(id bailey.CapabilityID, input map[string]any) (map[string]any, bool, []string, error) {
		m, err := catalog.Lookup(id)
		if err != nil {
			return nil, false, nil, err
		}
		typed, err := m.Check(input, false)
		if err != nil {
			return nil, false, nil, err
		}
		egress, err := m.Egress(typed)
		return typed, m.Writes(), egress, err
	}
}

// failed returns an error that lists the failed tests, or nil.
func failed(tests []policy.Failure) error {
	if len(tests) == 0 {
		return nil
	}
	const shown = 50
	var lines []string
	for i, f := range tests {
		if i == shown {
			lines = append(lines, fmt.Sprintf("and %d more", len(tests)-shown))
			break
		}
		lines = append(lines, strings.ReplaceAll(f.String(), "\n  ", "; "))
	}
	return &bailey.Error{Kind: bailey.Invalid, Message: "the policy does not do what its tests say:\n  " + strings.Join(lines, "\n  "),
		Hint: "correct the rule or the test; bailey policy check runs them again"}
}

// Other reports whether the call uses another manifest than the one whose class the rules examine, because packs were
// replaced after the lookup of the capability.
func (e *Edition) Other(q bailey.Request) bool {
	if e.catalog == nil || q.Manifest == "" {
		return false
	}
	m, err := e.catalog.Lookup(q.Capability)
	return err == nil && m.Digest != q.Manifest
}
