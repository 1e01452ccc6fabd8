package pack

import "encoding/json"

// OutputShape returns the part of outputSchema that also holds for redacted output: each string may instead contain a
// redaction token, and keywords that are not checked for redacted output are omitted. If a client checks an output that
// Structure accepted against this schema, it gets the same result. OutputShape returns nil if the manifest makes no
// promise.
func (m *Capability) OutputShape() json.RawMessage {
	if m.spec.Output == nil || m.spec.Output.Schema == nil {
		return nil
	}
	var tree any
	if json.Unmarshal(m.spec.Output.Schema, &tree) != nil { // cannot fail: it was parsed before
		return nil
	}
	raw, err := json.Marshal(relaxForRedaction(tree))
	if err != nil {
		return nil
	}
	return raw
}

// textKeywords contains keywords that do not apply to redacted strings. unjudged contains keywords that only the library
// checks.
var (
	textKeywords    = []string{"enum", "format", "maxLength", "minLength", "pattern"}
	libraryKeywords = []string{"anyOf", "const", "else", "if", "maxProperties", "minProperties", "not", "oneOf", "then",
		"uniqueItems"}
)

func relaxForRedaction(v any) any {
	s, ok := v.(map[string]any)
	if !ok { // the schema true or false
		return v
	}
	for _, key := range libraryKeywords {
		delete(s, key)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if sub, ok := s[key]; ok {
			s[key] = relaxForRedaction(sub)
		}
	}
	for _, key := range []string{"properties", "$defs"} {
		table, _ := s[key].(map[string]any)
		for name, sub := range table {
			table[name] = relaxForRedaction(sub)
		}
	}
	list, _ := s["allOf"].([]any)
	for i, sub := range list {
		list[i] = relaxForRedaction(sub)
	}
	rules := map[string]any{}
	for _, key := range textKeywords {
		if rule, ok := s[key]; ok {
			rules[key] = rule
			delete(s, key)
		}
	}
	if len(rules) > 0 {
		s["anyOf"] = []any{rules, map[string]any{"type": "string", "pattern": redactionToken().String()}}
	}
	return s
}
