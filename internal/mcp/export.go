package mcp

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"bailey"
)

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
		return nil, bailey.Invalid.Errorf("one of "+strings.Join(Formats(), ", "), "there is no format %q", format)
	}
	if format == twoTool {
		return searchAndCallSpecs(), nil
	}
	byID, ids := map[bailey.CapabilityID]Tool{}, []bailey.CapabilityID{}
	for _, t := range tools {
		byID[t.ID] = t
		ids = append(ids, t.ID)
	}
	listed, out := assignNames(ids), []any{}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		t := byID[listed[name]]
		if _, err := convertTool(name, t); err != nil {
			return nil, err
		}
		schema, err := portableSchema(t.InputSchema)
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
		{searchTool, "Find what can be called through Bailey, by words for what is to be done. Best first, each with its inputs.",
			object(map[string]any{"words": text("as in: what changed in a commit")}, "words")},
		{callToolName, instructions, object(map[string]any{"capability": text("its id, as in git.log"),
			"input": map[string]any{"type": "object", "description": "its inputs, by name"}}, "capability", "input")},
	}
}

// portableSchema returns a schema without the keywords of this project, because some model interfaces refuse unknown keywords.
func portableSchema(schema json.RawMessage) (any, error) {
	if len(schema) == 0 {
		return map[string]any{"type": "object"}, nil
	}
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
