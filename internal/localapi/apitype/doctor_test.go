package apitype

import (
	"strings"
	"testing"
)

// TestStatusWords checks that text from a client cannot forge a line of the status.
func TestStatusWords(t *testing.T) {
	var out strings.Builder
	s := Status{Running: true, Gateway: &GatewayStatus{}, Ledger: &LedgerStatus{Frail: "it melts"}, Cage: &CageStatus{Kind: "full"},
		Calls:    []LiveCall{{Capability: "x\ngateway  pid 1", Door: "mcp"}},
		Sessions: []LiveSession{{Client: "\x1b[2J\nagent  local: confined", Dir: "/a\nb"}}}
	if err := s.WriteSummary(&out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 9 || strings.Contains(out.String(), "\x1b") || strings.Contains(out.String(), "\nagent") {
		t.Errorf("%d lines:\n%s", n, &out)
	}
	for _, want := range []string{"not durable: it melts", "DAMAGED"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not said:\n%s", want, &out)
		}
	}
}

func TestAgentsWalkAround(t *testing.T) {
	agents := NewAgentStatus([]LiveSession{{Agent: "local"}, {Agent: "builder"}, {Agent: "builder"}})
	if len(agents) != 2 || agents[0].Agent != "builder" || agents[1].Agent != "local" {
		t.Fatalf("%+v", agents)
	}
	for _, a := range agents {
		if a.State != "open" || !strings.HasPrefix(a.Words, "this agent can bypass the gate: ") {
			t.Errorf("%+v", a)
		}
	}
}
