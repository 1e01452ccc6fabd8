package policyfiles

import (
	"slices"
	"testing"

	"bailey/internal/packstore"
	"bailey/internal/policy"
)

// TestStartings checks that the policies to begin with load with the built-in packs and pass their tests.
func TestStartings(t *testing.T) {
	catalog, err := packstore.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range policy.Startings() {
		rules, tests := s.Sources()
		e, err := Load(Files{Rules: rules, Tests: tests}, catalog)
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		if e.Tests < 4*(i+1) || slices.Contains([]string{s.Name, s.Text}, "") {
			t.Errorf("%s (%s): %d tests", s.Name, s.Text, e.Tests)
		}
	}
}
