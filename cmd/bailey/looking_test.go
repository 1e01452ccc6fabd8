package main

import (
	"testing"

	"bailey"
	"bailey/internal/broker"
)

// TestWantsCanBeLent: the broker bars variables that say what a tool loads or runs, whoever wrote the manifest. None of the built-in
// packs' is among them, or its calls could never be lent anything.
func TestWantsCanBeLent(t *testing.T) {
	all, err := builtIn()
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
