package mcp

import (
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// connectListed connects a client that is shown at most as many tools as listed says.
func connectListed(t *testing.T, g Gate, listed int) *sdk.ClientSession {
	t.Helper()
	near, far := net.Pipe()
	c := config(g)
	c.Listed = listed
	go Serve(t.Context(), c, far)
	s, err := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, nil).Connect(t.Context(), &sdk.IOTransport{Reader: near, Writer: near}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func toolNames(t *testing.T, s *sdk.ClientSession) (names []string) {
	t.Helper()
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// TestListedAndBeyond checks that an unlisted tool can be found and called as the capability that it is, and that a
// search finds nothing else.
func TestListedAndBeyond(t *testing.T) {
	g := yard()
	s := connectListed(t, g, 1)
	if got := toolNames(t, s); !slices.Equal(got, []string{searchTool, callToolName, "git_branch-list"}) {
		t.Fatalf("listed: %v", got)
	}
	r := callTool(t, s, searchTool, map[string]any{"words": "says it again"})
	var found struct {
		Found []struct {
			Capability  bailey.CapabilityID
			InputSchema map[string]any
		}
	}
	if err := json.Unmarshal([]byte(first(t, r)), &found); err != nil || len(found.Found) != 1 || found.Found[0].Capability != "system.echo" || found.Found[0].InputSchema["type"] != "object" {
		t.Fatalf("found %s (%v)", first(t, r), err)
	}
	if len(g.got()) != 0 {
		t.Errorf("a search is a call: %v", g.got())
	}
	for _, name := range []string{"system.echo", "system_echo"} {
		if r := callTool(t, s, callToolName, map[string]any{"capability": name, "input": map[string]any{"message": "from beyond"}}); r.IsError || first(t, r) != "from beyond" {
			t.Errorf("%s: %s", name, first(t, r))
		}
	}
	if calls := g.got(); len(calls) != 2 || calls[0].Capability != "system.echo" || calls[1].Capability != "system.echo" {
		t.Errorf("the gate saw %+v", calls)
	}
	if r := callTool(t, s, callToolName, map[string]any{"capability": "hidden.thing", "input": map[string]any{}}); !r.IsError || !strings.Contains(first(t, r), "no capability") {
		t.Errorf("what is not there: %s", first(t, r))
	}
	for _, args := range []map[string]any{{}, {"words": ""}, {"words": 1}, {"words": strings.Repeat("x", maxAsked+1)}} {
		if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: searchTool, Arguments: args}); err == nil {
			t.Errorf("a search for %.40v", args)
		}
	}
	if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: callToolName, Arguments: map[string]any{"input": map[string]any{}}}); err == nil {
		t.Error("a call of nothing")
	}
}

// TestAllListed checks that the search and call tools are missing if all tools fit, and that a capability may have one
// of their names.
func TestAllListed(t *testing.T) {
	g := yard()
	if got := toolNames(t, connectListed(t, g, 3)); len(got) != 3 || slices.Contains(got, searchTool) {
		t.Errorf("listed: %v", got)
	}
	g.tools = append(g.tools, Tool{ID: "capability.call", Description: "a capability of that name"})
	g.do["capability.call"] = g.do["system.echo"]
	s := connectListed(t, g, 1)
	if got := toolNames(t, s); !slices.Equal(got, []string{searchTool, "capability_call"}) {
		t.Errorf("listed: %v", got)
	}
	if r := callTool(t, s, "capability_call", map[string]any{"message": "itself"}); r.IsError || first(t, r) != "itself" {
		t.Errorf("%s", first(t, r))
	}
}
