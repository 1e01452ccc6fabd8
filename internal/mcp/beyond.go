package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// If a client can call more tools than are listed, two tools give access to the rest: one that searches, and one that
// calls a found capability. Each call is still a call of the named capability.
const searchTool, callToolName = "capabilities_search", "capability_call"

// maxAsked limits a search text in bytes, and maxFound the number of results.
const maxAsked, maxFound = 400, 10

// searchAndCallTools returns the two tools for tools/list. It omits a tool if a capability has the same name.
func searchAndCallTools(listed map[string]bailey.CapabilityID) (list []*sdk.Tool) {
	no := false
	for _, t := range searchAndCallSpecs() {
		if _, taken := listed[t.Name]; !taken {
			list = append(list, &sdk.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema,
				Annotations: &sdk.ToolAnnotations{ReadOnlyHint: t.Name == searchTool, DestructiveHint: &no}})
		}
	}
	return list
}

// exceedsListLimit reports whether the session may call more tools than are listed.
func (s *session) exceedsListLimit(listed map[string]bailey.CapabilityID) bool {
	return s.Listed > 0 && len(listed) > s.Listed
}

// searchCapabilities returns matching capabilities that the session can call, best first. It is a query, like tools/list, and not a
// call.
func (s *session) searchCapabilities(ctx context.Context, req *sdk.CallToolRequest) (sdk.Result, error) {
	var q struct {
		Words string `json:"words"`
	}
	if json.Unmarshal(req.Params.Arguments, &q) != nil || strings.TrimSpace(q.Words) == "" || len(q.Words) > maxAsked {
		return nil, invalidParams(fmt.Sprintf("words: a text of at most %d bytes is wanted", maxAsked))
	}
	type found struct {
		ID          bailey.CapabilityID `json:"capability"`
		Description string              `json:"description"`
		Input       json.RawMessage     `json:"inputSchema"`
	}
	out := struct {
		Found []found `json:"found"`
	}{Found: []found{}}
	_, tools := s.visibleTools(ctx)
	for _, id := range s.Gate.Search(ctx, q.Words) {
		// capabilities that are not visible to the session are omitted
		if t, ok := tools[id]; ok && len(out.Found) < maxFound {
			schema := t.InputSchema
			if len(schema) == 0 {
				schema = json.RawMessage(`{"type":"object"}`)
			}
			out.Found = append(out.Found, found{id, t.Description, schema})
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	a := &answer{Content: []sdk.Content{&sdk.TextContent{Text: string(text)}}}
	if newer, _ := elicitationSupport(req); newer {
		a.Type = "complete"
	}
	return a, nil
}

// parseIndirectCall parses a call of viaTool. It returns the id or tool name of the capability, and its inputs.
func parseIndirectCall(raw json.RawMessage) (name string, input json.RawMessage, err error) {
	var c struct {
		Capability string          `json:"capability"`
		Input      json.RawMessage `json:"input"`
	}
	if json.Unmarshal(raw, &c) != nil || c.Capability == "" {
		return "", nil, invalidParams("capability: the id of one is wanted, as capabilities_search finds it")
	}
	return c.Capability, c.Input, nil
}
