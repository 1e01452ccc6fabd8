package pack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
)

// output is the part of a manifest about the output of its tool.
type output struct {
	Schema json.RawMessage `json:"schema,omitempty"`
	Page   *page           `json:"page,omitempty"`
}

// page names the inputs that reduce the output of one call.
type page struct {
	Limit string `json:"limit,omitempty"` // amount
	Next  string `json:"next,omitempty"`  // start position
}

// redactionToken matches the token that replaces a secret in an output (package redact).
var redactionToken = lazyRegexp(`\[REDACTED_[A-Z][A-Z0-9_]*\]`)

// maxStructured limits structured output in the form in which front ends write it, in bytes. If many characters must be
// escaped, this form is several times larger than the output of the tool.
const maxStructured = 3 << 20

// maxOutputDeep limits the nesting of lists and objects in checked output.
const maxOutputDeep = 128

// OutputSchema returns the schema of the tool's stdout, or nil if the manifest makes no promise. The caller must not
// change it.
func (m *Capability) OutputSchema() json.RawMessage {
	if m.spec.Output == nil {
		return nil
	}
	return m.spec.Output.Schema
}

// Structure parses the complete, redacted stdout of the tool, checks it against outputSchema and returns it as JSON in
// canonical form. If a string contains a redaction token, only its type is checked. Then the output is not checked
// against anyOf, oneOf, not and if.
func (m *Capability) Structure(stdout []byte) (json.RawMessage, error) {
	v, err := decodeJSON(string(stdout))
	if err != nil || !json.Valid(stdout) {
		return nil, m.outputError("it is not JSON")
	}
	if isDeeperThan(v, maxOutputDeep) {
		return nil, m.outputError(fmt.Sprintf("it is nested deeper than %d", maxOutputDeep))
	}
	// the output is redacted already
	c := &checker{id: string(m.ID), output: true, redacted: redactionToken().Match(stdout),
		hide: func(v string) string { return v }}
	c.checkValue("", m.output.root, v, nil)
	c.checkRounded(m.output.root, v)
	if len(c.complaints) > 0 {
		return nil, m.outputError(strings.Join(c.complaints[:min(len(c.complaints), maxComplaints)], "; "))
	}
	if raw, err := json.Marshal(v); err != nil || len(raw) > maxStructured {
		return nil, m.outputError(fmt.Sprintf("it needs %d bytes in JSON, more than %d", len(raw), maxStructured))
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // without escapes, the redactor recognises secrets
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func (m *Capability) outputError(why string) error {
	return bailey.ToolFailed.New("the output does not match outputSchema: "+why,
		"the tool succeeded, and its effects are done; its output is here as text, and "+string(m.ID)+
			" needs another outputSchema")
}

// Cut returns the error for a truncated output with a schema. A partial output is not checked.
func (m *Capability) Cut() error {
	hint := "the tool succeeded, and its effects are done"
	if n := m.Narrow(); n != "" {
		hint += "; " + n
	}
	return bailey.ToolFailed.Errorf(hint,
		"the output was truncated at %d bytes, so it does not match outputSchema", bailey.OutputCap)
}

// Narrow returns a hint how to reduce the output, or "" if the manifest contains none.
func (m *Capability) Narrow() string {
	if m.spec.Output == nil || m.spec.Output.Page == nil {
		return ""
	}
	switch p := m.spec.Output.Page; {
	case p.Next == "":
		return "request less at once with " + p.Limit
	case p.Limit == "":
		return "request the rest with " + p.Next
	default:
		return fmt.Sprintf("request less at once with %s, and the rest with %s", p.Limit, p.Next)
	}
}

// isDeeperThan reports whether v has more than left levels.
func isDeeperThan(v any, left int) bool {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if left == 0 || isDeeperThan(e, left-1) {
				return true
			}
		}
	case map[string]any:
		for _, e := range v {
			if left == 0 || isDeeperThan(e, left-1) {
				return true
			}
		}
	}
	return false
}

// readOutput reads outputSchema and the key output, which refers to inputs.
func (r *reader) readOutput(schemaAt, at ast.Node, m *manifest, inputs *schema) *schema {
	o := &output{}
	first := schemaAt
	if first == nil {
		first = at
	}
	if first != nil && m.Backend.Type != "subprocess" && m.Backend.Type != "sandbox" {
		r.AddFault(first, "backend %s runs no program that outputSchema could describe", m.Backend.Type)
		return nil
	}
	if at != nil {
		o.Page = r.readPage(at, inputs)
	}
	var s *schema
	if schemaAt != nil {
		s = r.outputSchema(schemaAt, o)
	}
	if o.Schema != nil || o.Page != nil {
		m.Output = o
	}
	return s
}

func (r *reader) outputSchema(n ast.Node, o *output) *schema {
	before := len(r.Faults)
	k := &keywordChecker{reader: r, defs: r.defNames(n), output: true}
	k.checkSchema(n, "outputSchema", 0)
	if len(r.Faults) > before {
		return nil
	}
	raw, err := json.Marshal(r.Value(n, "a schema"))
	if err != nil || len(raw) > maxSchema {
		r.AddFault(n, "outputSchema is larger than %d bytes", maxSchema)
		return nil
	}
	s, err := compileSchema(raw)
	if err != nil {
		r.AddFault(n, "outputSchema: %s", safeText(err.Error()))
		return nil
	}
	o.Schema = raw
	return s
}

func (r *reader) readPage(n ast.Node, inputs *schema) *page {
	var p *page
	r.Fields(n, "output", strictyaml.Fields{
		"page": func(n ast.Node) {
			p = &page{}
			seen := r.Fields(n, "page", strictyaml.Fields{
				"limit": r.wordField("limit", inputName(), &p.Limit),
				"next":  r.wordField("next", inputName(), &p.Next),
			})
			if len(seen) == 0 {
				r.AddFault(n, "page needs limit or next, the inputs that make the tool write less at once")
			}
			for _, name := range []string{p.Limit, p.Next} {
				if name != "" && inputs.props[name] == nil {
					r.AddFault(n, "page: %q is not an input%s", strictyaml.Clip(name), strictyaml.DidYouMean(name, inputs.names))
				}
			}
		},
	})
	return p
}

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

// textKeywords contains keywords that do not apply to redacted strings. wholeKeywords contains those that are not
// checked for redacted output.
var (
	textKeywords  = []string{"enum", "format", "maxLength", "minLength", "pattern"}
	wholeKeywords = []string{"anyOf", "const", "else", "if", "maxProperties", "minProperties", "not", "oneOf", "then",
		"uniqueItems"}
)

func relaxForRedaction(v any) any {
	s, ok := v.(map[string]any)
	if !ok { // the schema true or false
		return v
	}
	for _, key := range wholeKeywords {
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
