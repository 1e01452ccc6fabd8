package pack

import "encoding/json"

// OutputShape is outputSchema as far as it holds of an output in which something was redacted: each text may also be one in
// which a token stands, and what is judged of nothing else then is left out. Whoever gets an output that Structure let pass, and
// judges it once more by this, comes to the same. Nil where nothing is promised.
func (m *Capability) OutputShape() json.RawMessage {
	if m.spec.Output == nil || m.spec.Output.Schema == nil {
		return nil
	}
	var tree any
	if json.Unmarshal(m.spec.Output.Schema, &tree) != nil { // it was read before
		return nil
	}
	raw, err := json.Marshal(shape(tree))
	if err != nil {
		return nil
	}
	return raw
}

// Of a text that was redacted nothing that ofTexts say holds, and unjudged are the keywords that only the library knows.
var (
	ofTexts  = []string{"enum", "format", "maxLength", "minLength", "pattern"}
	unjudged = []string{"anyOf", "const", "else", "if", "maxProperties", "minProperties", "not", "oneOf", "then", "uniqueItems"}
)

func shape(v any) any {
	s, ok := v.(map[string]any)
	if !ok { // true or false
		return v
	}
	for _, key := range unjudged {
		delete(s, key)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if sub, ok := s[key]; ok {
			s[key] = shape(sub)
		}
	}
	for _, key := range []string{"properties", "$defs"} {
		table, _ := s[key].(map[string]any)
		for name, sub := range table {
			table[name] = shape(sub)
		}
	}
	list, _ := s["allOf"].([]any)
	for i, sub := range list {
		list[i] = shape(sub)
	}
	rules := map[string]any{}
	for _, key := range ofTexts {
		if rule, ok := s[key]; ok {
			rules[key] = rule
			delete(s, key)
		}
	}
	if len(rules) > 0 {
		s["anyOf"] = []any{rules, map[string]any{"type": "string", "pattern": redacted().String()}}
	}
	return s
}
