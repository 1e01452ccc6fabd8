//go:build linux

package policyfiles

import (
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/packstore"
	"bailey/internal/policy"
	"bailey/internal/policy/review"
)

// TestStartings checks that the policies to begin with load with the built-in packs and pass their tests.
func TestStartings(t *testing.T) {
	catalog, err := packstore.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range policy.Startings() {
		files, err := Starting(s.Name, false)
		if err != nil {
			t.Fatal(err)
		}
		outcomesTried(t, files)
		e, err := Load(files, catalog)
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		own := 0
		for r := range e.Engine.Rules() {
			if !r.BuiltIn {
				own++
			}
			if strings.Contains(r.Text, "absent.isEmpty") { // no ordinary user has a cgroup
				t.Errorf("%s: rule %s", s.Name, r.ID)
			}
		}
		if own == 0 || own > 10 {
			t.Errorf("%s has %d rules", s.Name, own)
		}
		if e.Tests < 4*(i+1) || slices.Contains([]string{s.Name, s.Text}, "") {
			t.Errorf("%s (%s): %d tests", s.Name, s.Text, e.Tests)
		}
	}
}

// TestDefaultsStay checks that the policies with which an agent works, also that of the example solo, deny no call that runs
// or asks under the built-in policy.
func TestDefaultsStay(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	catalog, err := packstore.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	solo, err := ReadDir("../../examples/policy/solo")
	if err != nil {
		t.Fatal(err)
	}
	work, _ := Starting("work", false)
	push, _ := Starting("push", false)
	for _, s := range work.All() {
		if strings.HasSuffix(s.Name, "-only.test.yaml") {
			continue
		}
		if !slices.ContainsFunc(solo.All(), func(o policy.Source) bool { return o.Name == s.Name && string(o.Text) == string(s.Text) }) {
			t.Errorf("%s of examples/policy/solo differs from that of policy start work", s.Name)
		}
	}
	defaults, err := policy.ParseTests(policy.StarterTests())
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]Files{"work": work, "push": push, "solo": solo} {
		e, err := Load(Files{Rules: f.Rules}, catalog)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		kept := 0
		for _, test := range defaults {
			if test.Expect == bailey.Deny {
				continue
			}
			allowed, asked := test, test
			allowed.Expect, allowed.Rules, asked.Expect, asked.Rules = bailey.Allow, nil, bailey.Ask, nil
			if both := review.RunTests(e.Engine, []policy.Test{allowed, asked}, inputChecker(catalog)); len(both) != 1 {
				t.Errorf("%s denies: %s\n%v", name, test.Name, both)
			}
			kept++
		}
		if kept < 10 {
			t.Errorf("only %d defaults", kept)
		}
	}
}
