//go:build linux

package packstore

import (
	"encoding/json"
	"slices"
	"testing"

	"bailey"
	"bailey/internal/broker"
	"bailey/internal/redact"
)

// TestWantsCanBeLent checks that no built-in pack uses a variable that the broker forbids because it controls which
// code a tool runs. If one did, its calls could never get a credential.
func TestWantsCanBeLent(t *testing.T) {
	all, err := BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	nobody := broker.Client{Socket: "/nowhere/broker.sock"}
	n := 0
	for _, m := range all.All() {
		if wants := m.Wants(); len(wants) > 0 {
			n++
			if _, err := nobody.Scope(t.Context(), wants); bailey.KindOf(err) != bailey.Unavailable {
				t.Errorf("%s: %v", m.ID, err)
			}
		}
	}
	if n == 0 {
		t.Error("no built-in capability wants anything: this test looks at none")
	}
}

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
