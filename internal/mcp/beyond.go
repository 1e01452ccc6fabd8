package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// Where more can be called than is to be listed, two tools stand for the rest: one that searches, and one that calls what
// was found. Every call is still a call of the capability that it names.
const searchTool, viaTool = "capabilities_search", "capability_call"

// maxAsked bounds what is searched for, in bytes; maxFound how many are found.
const maxAsked, maxFound = 400, 10

// beyond are the two tools as tools/list has them. One whose name a capability has is not there.
func beyond(listed map[string]bailey.CapabilityID) (list []*sdk.Tool) {
	no := false
	for _, t := range pair() {
		if _, taken := listed[t.Name]; !taken {
			list = append(list, &sdk.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema,
				Annotations: &sdk.ToolAnnotations{ReadOnlyHint: t.Name == searchTool, DestructiveHint: &no}})
		}
	}
	return list
}

// over reports whether a session is shown less than it may call.
func (s *session) over(listed map[string]bailey.CapabilityID) bool {
	return s.Listed > 0 && len(listed) > s.Listed
}

// search answers with what can be called, best first. It is a look, as tools/list is, and no call.
func (s *session) search(ctx context.Context, req *sdk.CallToolRequest) (sdk.Result, error) {
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
	_, tools := s.visible(ctx)
	for _, id := range s.Gate.Search(ctx, q.Words) {
		if t, ok := tools[id]; ok && len(out.Found) < maxFound { // what it may not see is not found either
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
	if newer, _ := era(req); newer {
		a.Type = "complete"
	}
	return a, nil
}

// meant reads a call of viaTool: the capability by its id or its tool's name, and its inputs.
func meant(raw json.RawMessage) (name string, input json.RawMessage, err error) {
	var c struct {
		Capability string          `json:"capability"`
		Input      json.RawMessage `json:"input"`
	}
	if json.Unmarshal(raw, &c) != nil || c.Capability == "" {
		return "", nil, invalidParams("capability: the id of one is wanted, as capabilities_search finds it")
	}
	return c.Capability, c.Input, nil
}
