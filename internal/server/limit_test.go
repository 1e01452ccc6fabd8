package server

import (
	"errors"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/gateway"
)

// TestDoorsAreLimited checks that an interface reaches the gate only through the rate limit. A call that the limit
// refuses must have no receipt.
func TestDoorsAreLimited(t *testing.T) {
	s := spineForTest(t)
	s.limit = gateway.NewLimit(gateway.LimitConfig{Gate: s.Gate, Note: s.ledger.Note, Rate: 1e-9, Burst: 1})
	call := bailey.Call{Capability: "no.such", Principal: bailey.Principal{Agent: "local"}, Session: bailey.Session{ID: "s-1"}, Door: "mcp"}
	door := mcpBackend{s: s}
	if first := door.Do(t.Context(), call); first.Receipt == "" {
		t.Errorf("the first call has no receipt: %+v", first)
	}
	if second := door.Do(t.Context(), call); !errors.Is(second.Err, bailey.Denied) || !strings.Contains(second.Err.Error(), "too many calls") || second.Receipt != "" {
		t.Errorf("the second: %+v", second)
	}
	s.limit.Close()
	if r, err := s.ledger.Verify(); err != nil || !r.OK || r.Intents != 1 || r.Entries != 4 {
		t.Errorf("genesis, intent, outcome and what was suppressed: %+v %v", r, err)
	}
}
