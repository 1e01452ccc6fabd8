//go:build linux

package policyfiles

import (
	"testing"

	"bailey/internal/policy"
)

// TestPolicyDigest checks that any change of a file, a name or a byte changes the digest.
func TestPolicyDigest(t *testing.T) {
	seen := map[string]string{}
	for name, files := range map[string]map[string]string{
		"one": {"a.cedar": "x"}, "renamed": {"b.cedar": "x"}, "changed": {"a.cedar": "y"}, "split": {"a.cedar": "", "b.cedar": "x"},
		"tests": {"a.cedar": "x", "b.test.yaml": "x"}, "budgets": {"a.cedar": "x", "budgets.yaml": "x"}, "moved": {"a.cedar": "xb.cedar"},
	} {
		var f Files
		for n, text := range files {
			if err := f.Add(policy.Source{Name: n, Text: []byte(text)}); err != nil {
				t.Fatal(err)
			}
		}
		if other, twice := seen[f.Digest()]; twice {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[f.Digest()] = name
	}
}
