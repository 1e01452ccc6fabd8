package pack

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
)

// rule is one schema.
type rule struct {
	Ref         string           `json:"$ref"`
	Defs        map[string]*rule `json:"$defs"`
	Description string           `json:"description"`
	Type        typeList         `json:"type"`
	Enum        []any            `json:"enum"`
	Const       constant         `json:"const"`
	Default     constant         `json:"default"`
	Minimum     json.Number      `json:"minimum"`
	Maximum     json.Number      `json:"maximum"`
	Above       json.Number      `json:"exclusiveMinimum"`
	Below       json.Number      `json:"exclusiveMaximum"`
	MinLength   *int             `json:"minLength"`
	MaxLength   *int             `json:"maxLength"`
	Pattern     string           `json:"pattern"`
	Format      string           `json:"format"`
	Items       *rule            `json:"items"`
	MinItems    *int             `json:"minItems"`
	MaxItems    *int             `json:"maxItems"`
	Unique      bool             `json:"uniqueItems"`
	Required    []string         `json:"required"`
	Properties  map[string]*rule `json:"properties"`
	Closed      *rule            `json:"additionalProperties"`
	MinMembers  int              `json:"minProperties"`
	MaxMembers  *int             `json:"maxProperties"`
	AllOf       []*rule          `json:"allOf"`
	AnyOf       []*rule          `json:"anyOf"`
	OneOf       []*rule          `json:"oneOf"`
	Not         *rule            `json:"not"`
	If          *rule            `json:"if"`
	Then        *rule            `json:"then"`
	Else        *rule            `json:"else"`
	Secrets     []string         `json:"acceptsSecret"`
	Bailey      struct {
		Allow   []string `json:"allow"`
		Options string   `json:"options"`
	} `json:"x-bailey"`

	never   bool                  // the schema is false
	target  *rule                 // target of Ref
	matches func() *regexp.Regexp // compiles Pattern at its first use
	options *optionTable          // parsed Bailey.Options
	stream  bool                  // the value is standard input and not an argument
}

// UnmarshalJSON also accepts true and false as schemas.
func (r *rule) UnmarshalJSON(data []byte) error {
	if t := bytes.TrimSpace(data); len(t) > 0 && t[0] != '{' {
		var b bool
		err := json.Unmarshal(t, &b)
		r.never = !b
		return err
	}
	type plain rule
	return decodeNumbers(data, (*plain)(r))
}

// decodeNumbers decodes one value of JSON. Numbers in a value of any type become json.Number.
func decodeNumbers(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one value")
	}
	return nil
}

// followRef follows $ref. Cycles are refused at load.
func (r *rule) followRef() *rule {
	for r != nil && r.target != nil {
		r = r.target
	}
	return r
}

// eachChild calls f for each direct subschema, except $defs.
func (r *rule) eachChild(f func(*rule)) {
	for _, c := range []*rule{r.target, r.Items, r.Closed, r.Not, r.If, r.Then, r.Else} {
		if c != nil {
			f(c)
		}
	}
	for _, l := range [][]*rule{r.AllOf, r.AnyOf, r.OneOf} {
		for _, c := range l {
			f(c)
		}
	}
	for _, k := range sortedKeys(r.Properties) {
		f(r.Properties[k])
	}
}

// hasType reports whether the rule allows JSON type t. A rule without types allows all.
func (r *rule) hasType(t string) bool { return len(r.Type) == 0 || slices.Contains(r.Type, t) }

// hasOnlyTypes reports whether every value that the rule allows has one of the types.
func (r *rule) hasOnlyTypes(ts ...string) bool {
	for _, t := range r.Type {
		if !slices.Contains(ts, t) {
			return false
		}
	}
	return len(r.Type) > 0
}

// typeList is the name of one type, or a list of names.
type typeList []string

func (t *typeList) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]string)(t))
	}
	*t = make([]string, 1)
	return json.Unmarshal(data, &(*t)[0])
}

// constant is one value, or empty if the keyword is absent. The value may be null.
type constant []any

func (v *constant) UnmarshalJSON(data []byte) error {
	*v = make([]any, 1)
	return decodeNumbers(data, &(*v)[0])
}

// Text contains the properties of a string in an input that a restorer of secrets needs. It is the zero Text if the
// schema does not define them for certain: in combinators, unknown inputs and keys.
type Text struct {
	Format        string   // host, address, url, path, subpath
	AcceptsSecret []string // categories
}

// Rewrite returns a copy of input, checked or not, in which f has replaced each string value.
func (m *Capability) Rewrite(input map[string]any, f func(s string, t Text) string) map[string]any {
	if input == nil {
		return nil
	}
	w := rewriter(f)
	out := make(map[string]any, len(input))
	for _, name := range sortedKeys(input) { // sorted, so that f is always called in the same order
		r := m.schema.props[name]
		if m.isPath(name) {
			r = &rule{Format: "path", Type: typeList{"string"}}
		}
		out[name] = w.rewriteValue(input[name], r)
	}
	return out
}

type rewriter func(s string, t Text) string

func (w rewriter) rewriteValue(v any, r *rule) any {
	r = r.followRef()
	switch v := v.(type) {
	case string:
		if r == nil || !r.hasType("string") {
			return w(v, Text{})
		}
		return w(v, Text{Format: r.Format, AcceptsSecret: r.Secrets})
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			var items *rule
			if r != nil {
				items = r.Items
			}
			out[i] = w.rewriteValue(e, items)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, name := range sortedKeys(v) {
			var member *rule
			if r != nil {
				member = r.Properties[name]
			}
			out[name] = w.rewriteValue(v[name], member)
		}
		return out
	}
	return v
}
