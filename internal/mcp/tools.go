package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// maxName limits the name of a tool in bytes. Model interfaces allow 64, and agents use some of them for the name of
// the server ("mcp__bailey__").
const maxName = 48

// assignNames assigns each capability the name that agents see. The result depends only on the set of ids and not on its
// order. A name identifies one capability: if hashes collide, none of the affected capabilities gets a name.
func assignNames(ids []bailey.CapabilityID) map[string]bailey.CapabilityID {
	want := map[bailey.CapabilityID]string{}
	for _, id := range ids {
		if want[id] = sanitizeName(id); want[id] == "" || len(want[id]) > maxName {
			want[id] = hashedName(id)
		}
	}
	for {
		owners := map[string]int{}
		for _, n := range want {
			owners[n]++
		}
		changed := false
		for id, n := range want {
			if owners[n] > 1 && n != hashedName(id) {
				want[id], changed = hashedName(id), true
			}
		}
		if changed {
			continue
		}
		out := map[string]bailey.CapabilityID{}
		for id, n := range want {
			if owners[n] == 1 {
				out[n] = id
			}
		}
		return out
	}
}

// sanitizeName replaces characters that a tool name must not contain.
func sanitizeName(id bailey.CapabilityID) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, string(id))
}

// hashedName returns a name with a hash of the id.
func hashedName(id bailey.CapabilityID) string {
	const digits = 10
	sum := sha256.Sum256([]byte(id))
	p := sanitizeName(id)
	return p[:min(len(p), maxName-1-digits)] + "-" + hex.EncodeToString(sum[:])[:digits]
}

// guessCapability returns the capability that an agent may have meant by an unlisted name, so that a call of a hidden capability
// gets a receipt and a reason. It never returns a listed capability under another name.
func guessCapability(name string, listed map[string]bailey.CapabilityID) bailey.CapabilityID {
	id := bailey.CapabilityID(strings.Replace(name, "_", ".", 1))
	if strings.Contains(name, ".") {
		id = bailey.CapabilityID(name)
	}
	for _, l := range listed {
		if l == id && string(id) != name {
			return bailey.CapabilityID(printableText(name, 128))
		}
	}
	return bailey.CapabilityID(printableText(string(id), 128))
}

// printableText makes the self-description of a client safe for a receipt and a terminal. Unprintable characters are
// replaced and not removed, and a shortened text ends in an ellipsis, so the result cannot be mistaken for another
// text. n is in bytes and must be at least 3.
func printableText(s string, n int) string {
	var b strings.Builder
	for _, r := range s {
		if !unicode.IsPrint(r) {
			r = utf8.RuneError
		}
		b.WriteRune(r)
		if b.Len() > n {
			break
		}
	}
	out := b.String()
	if len(out) <= n {
		return out
	}
	cut := n - len("…")
	for cut > 0 && !utf8.RuneStart(out[cut]) {
		cut--
	}
	return out[:cut] + "…"
}

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
		return nil, invalidParams(fmt.Sprintf("words: must be a text of at most %d bytes", maxAsked))
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
			out.Found = append(out.Found, found{id, t.Description, t.inputSchema()})
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
		return "", nil, invalidParams("capability: must be the ID of one, as capabilities_search finds it")
	}
	return c.Capability, c.Input, nil
}

// exports contains the tool formats of agents without MCP. Each function converts one tool.
var exports = map[string]func(name, description string, schema any) any{
	// Messages API, tools: https://docs.anthropic.com/en/api/messages
	"claude": func(name, description string, schema any) any {
		return map[string]any{"name": name, "description": description, "input_schema": schema}
	},
	// Chat completions, tools. Strict mode would require every input, so it is off:
	// https://platform.openai.com/docs/guides/function-calling
	"openai": func(name, description string, schema any) any {
		return map[string]any{"type": "function",
			"function": map[string]any{"name": name, "description": description, "parameters": schema, "strict": false}}
	},
	// FunctionDeclaration. One entry of tools contains all of them:
	// https://ai.google.dev/api/caching#FunctionDeclaration
	"gemini": func(name, description string, schema any) any {
		return map[string]any{"name": name, "description": description, "parametersJsonSchema": schema}
	},
	// The two tools in the format of MCP, which other interfaces share except for a field name.
	twoTool: nil,
}

const twoTool = "two-tool"

// Formats returns the formats that [Export] supports.
func Formats() []string { return slices.Sorted(maps.Keys(exports)) }

// Export converts tools to the format of a model interface, sorted by name. The names are those of tools/list. The
// format two-tool always contains two tools, one that searches and one that calls. An agent implements them with
// `bailey capabilities search` and `bailey run`.
func Export(tools []Tool, format string) (any, error) {
	shape, known := exports[format]
	if !known {
		return nil, bailey.Invalid.Errorf("one of "+strings.Join(Formats(), ", "), "unknown format %q", format)
	}
	if format == twoTool {
		return searchAndCallSpecs(), nil
	}
	listed, byID := nameTools(tools)
	out := []any{}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		t := byID[listed[name]]
		if _, err := convertTool(name, t); err != nil {
			return nil, err
		}
		schema, err := portableSchema(t.inputSchema())
		if err != nil {
			return nil, err
		}
		out = append(out, shape(name, t.Description, schema))
	}
	if format == "gemini" {
		return []any{map[string]any{"functionDeclarations": out}}, nil
	}
	return out, nil
}

// toolSpec is one of the two tools.
type toolSpec struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	InputSchema any    `json:"inputSchema"`
}

// searchAndCallSpecs returns the two tools that find and call all others.
func searchAndCallSpecs() []toolSpec {
	text := func(description string) any { return map[string]any{"type": "string", "description": description} }
	object := func(properties map[string]any, required ...string) any {
		return map[string]any{"type": "object", "properties": properties, "required": required,
			"additionalProperties": false}
	}
	return []toolSpec{
		{searchTool, "Find capabilities of Bailey by words that describe the task. Best match first, each with its inputs.",
			object(map[string]any{"words": text("for example: what changed in a commit")}, "words")},
		{callToolName, instructions, object(map[string]any{"capability": text("its id, for example git.log"),
			"input": map[string]any{"type": "object", "description": "its inputs, by name"}}, "capability", "input")},
	}
}

// portableSchema returns a schema without the keywords of this project, because some model interfaces refuse unknown keywords.
func portableSchema(schema json.RawMessage) (any, error) {
	var v any
	if err := json.Unmarshal(schema, &v); err != nil {
		return nil, err
	}
	stripKeywords(v)
	return v, nil
}

// stripKeywords removes the keywords from a schema and its subschemas. It does not change property names and values.
func stripKeywords(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			stripKeywords(e)
		}
	case map[string]any:
		delete(v, "x-bailey")
		delete(v, "acceptsSecret")
		for key, inner := range v {
			switch key {
			case "enum", "const", "default", "examples":
			case "properties", "$defs", "patternProperties", "dependentSchemas":
				if named, ok := inner.(map[string]any); ok {
					for _, e := range named {
						stripKeywords(e)
					}
				}
			default:
				stripKeywords(inner)
			}
		}
	}
}
