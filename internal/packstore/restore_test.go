//go:build linux

package packstore

import (
	"encoding/json"
	"slices"
	"testing"

	"bailey/internal/redact"
)

// TestBuiltInAcceptsSecretOfKnownKinds checks that each accepted category has a detector. Otherwise the input could
// never get a secret.
func TestBuiltInAcceptsSecretOfKnownKinds(t *testing.T) {
	catalog, err := BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	known := redact.Categories()
	if !slices.Contains(known, "PASSWORD") {
		t.Fatal("the test shows nothing")
	}
	for _, m := range catalog.All() {
		var schema struct {
			Properties map[string]struct{ AcceptsSecret []string }
		}
		if err := json.Unmarshal(m.InputSchema(), &schema); err != nil {
			t.Fatal(err)
		}
		for name, in := range schema.Properties {
			for _, c := range in.AcceptsSecret {
				if !slices.Contains(known, c) {
					t.Errorf("%s: %s accepts %s, which is nothing", m.ID, name, c)
				}
			}
		}
	}
}
