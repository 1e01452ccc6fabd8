package mcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bailey"
)

// exports are the shapes of tools for agents that speak no MCP, each for one tool but the two last.
var exports = map[string]func(name, description string, schema any) any{
	// Messages API, tools: https://docs.anthropic.com/en/api/messages
	"claude": func(name, description string, schema any) any {
		return map[string]any{"name": name, "description": description, "input_schema": schema}
	},
	// Chat completions, tools; not strict, which would want every input to be required: https://platform.openai.com/docs/guides/function-calling
	"openai": func(name, description string, schema any) any {
		return map[string]any{"type": "function", "function": map[string]any{"name": name, "description": description, "parameters": schema, "strict": false}}
	},
	// FunctionDeclaration, of which one entry of tools holds all: https://ai.google.dev/api/caching#FunctionDeclaration
	"gemini": func(name, description string, schema any) any {
		return map[string]any{"name": name, "description": description, "parametersJsonSchema": schema}
	},
	// The two tools in the shape of MCP, which is everybody's but for the name of a field.
	twoTool: nil,
}

const twoTool = "two-tool"

// Formats lists what [Export] writes.
func Formats() []string { return slices.Sorted(maps.Keys(exports)) }

// Export writes tools down as a model's interface takes them, in the order of their names, which are those of tools/list. In
// the format two-tool they are two, one that searches and one that calls, whatever there is: `bailey capabilities search`
// and `bailey run` are what an agent makes of them.
func Export(tools []Tool, format string) (any, error) {
	shape, known := exports[format]
	if !known {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("there is no format %q", format), Hint: "one of " + strings.Join(Formats(), ", ")}
	}
	if format == twoTool {
		return pair(), nil
	}
	byID, ids := map[bailey.CapabilityID]Tool{}, []bailey.CapabilityID{}
	for _, t := range tools {
		byID[t.ID] = t
		ids = append(ids, t.ID)
	}
	listed, out := names(ids), []any{}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		t := byID[listed[name]]
		if _, err := describe(name, t); err != nil {
			return nil, err
		}
		schema, err := common(t.InputSchema)
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

// pairTool is one of the two.
type pairTool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	InputSchema any    `json:"inputSchema"`
}

// pair is what finds and calls all the rest.
func pair() []pairTool {
	text := func(description string) any { return map[string]any{"type": "string", "description": description} }
	object := func(properties map[string]any, required ...string) any {
		return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	}
	return []pairTool{
		{searchTool, "Find what can be called through Bailey, by words for what is to be done. Best first, each with its inputs.",
			object(map[string]any{"words": text("as in: what changed in a commit")}, "words")},
		{viaTool, instructions, object(map[string]any{"capability": text("its id, as in git.log"),
			"input": map[string]any{"type": "object", "description": "its inputs, by name"}}, "capability", "input")},
	}
}

// common is a schema without the keywords that are ours alone: interfaces of models refuse some that they do not know.
func common(schema json.RawMessage) (any, error) {
	if len(schema) == 0 {
		return map[string]any{"type": "object"}, nil
	}
	var v any
	if err := json.Unmarshal(schema, &v); err != nil {
		return nil, err
	}
	plainer(v)
	return v, nil
}

// plainer walks a schema, and of what it holds what is a schema again: names of properties are no keywords, nor is a value.
func plainer(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			plainer(e)
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
						plainer(e)
					}
				}
			default:
				plainer(inner)
			}
		}
	}
}
