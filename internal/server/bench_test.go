package server

import (
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// BenchmarkCheck measures the work before a decision: lookup, restore, and the check with the plan of the cage.
func BenchmarkCheck(b *testing.B) {
	ktest.Require(b, "userns")
	s := spineForTest(b)
	call := bailey.Call{Capability: "system.echo", Input: map[string]any{"message": "hi"}, Dir: "/", Door: "bench", Session: bailey.Session{ID: "s"}}
	for b.Loop() {
		if _, err := s.Gate.Request(b.Context(), call); err != nil {
			b.Fatal(err)
		}
	}
}
