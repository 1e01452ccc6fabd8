package packstore

import (
	"testing"

	"bailey"
	"bailey/internal/broker"
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
