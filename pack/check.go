package pack

import (
	"encoding/json"
	"fmt"
	"strings"

	"bailey"
)

const maxComplaints = 8 // in one error; the check stops after them

// Check returns a typed copy of the input that satisfies the schema and the rules for values. Numbers are json.Number,
// whole numbers without exponent or fraction. Defaults are not added, because templates have their own. If text is set,
// strings are converted to the types of the schema: integers, numbers, booleans, and lists or objects in JSON; a list
// of strings may also be one plain string, which becomes its only element. The error is Invalid and contains every
// complaint.
func (m *Capability) Check(input map[string]any, text bool) (map[string]any, error) {
	input = m.filled(input)
	c := &checker{id: string(m.ID), about: "input ", hide: m.hidden}
	clean := make(map[string]any, len(input))
	for _, name := range keys(input) {
		if len(c.complaints) > maxComplaints {
			break
		}
		p, ok := m.schema.props[name]
		if !ok {
			c.unknown(m, name)
			continue
		}
		v := input[name]
		if s, ok := v.(string); ok && text {
			v = typed(s, p)
		}
		v, err := c.copy(v, 0)
		if err != nil {
			c.complain("/"+name, "%s", err)
			continue
		}
		clean[name] = v
	}
	if c.total > maxTotal {
		c.complain("", "has %d bytes, more than %d", c.total, maxTotal)
	}
	if len(c.complaints) == 0 {
		c.value("", m.schema.root, clean, nil)
	}
	if len(c.complaints) == 0 {
		if err := m.schema.verdict(clean); err != nil {
			c.blame(m, clean, err)
		}
	}
	if len(c.complaints) == 0 {
		c.keyed(m, clean)
	}
	if len(c.complaints) > 0 {
		return nil, c.err(m)
	}
	return clean, nil
}

// checker collects the complaints about the input of one call.
type checker struct {
	id         string
	about      string // prefix of a pointer: "input "
	output     bool   // the value is output of a tool and not an argument
	hide       func(string) string
	complaints []string
	hint       string
	total      int // bytes
}

func (c *checker) complain(at, format string, args ...any) {
	c.complaints = append(c.complaints, c.about+c.pointer(at)+" "+fmt.Sprintf(format, args...))
}

// pointer returns a JSON pointer in the form of complaints.
func (c *checker) pointer(at string) string {
	if at == "" {
		return "/:"
	}
	return c.show(at) + ":"
}

func (c *checker) unknown(m *Capability, name string) {
	takes := "takes no inputs"
	if len(m.schema.names) > 0 {
		takes = "takes " + strings.Join(m.schema.names, ", ")
	}
	c.complaints = append(c.complaints, fmt.Sprintf("input \"%s\" is not known; %s %s", c.show(name), m.ID, takes))
	if best := closest(name, m.schema.names); best != "" && c.hint == "" {
		c.hint = fmt.Sprintf("did you mean %q?", best)
	}
}

func (c *checker) err(m *Capability) error {
	list := c.complaints
	if len(list) > maxComplaints {
		list = append(list[:maxComplaints:maxComplaints], "and more complaints")
	}
	hint := c.hint
	if hint == "" {
		hint = fmt.Sprintf("bailey capabilities show %s lists the inputs and their types", m.ID)
	}
	return &bailey.Error{Kind: bailey.Invalid, Message: strings.Join(list, "; "), Hint: hint}
}

// copy returns a deep, size-limited copy of v with JSON types only.
func (c *checker) copy(v any, depth int) (any, error) {
	if depth > maxDeep {
		return nil, fmt.Errorf("is nested deeper than %d", maxDeep)
	}
	switch v := v.(type) {
	case nil, bool:
		return v, nil
	case string:
		c.total += len(v)
		return v, nil
	case json.Number:
		c.total += len(v)
		n, err := exact(v)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number within range", c.show(string(v)))
		}
		return n, nil
	case int, int64, float64:
		b, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("is not a number")
		}
		return c.copy(json.Number(b), depth)
	case []any:
		return c.list(v, depth)
	case map[string]any:
		return c.object(v, depth)
	}
	return nil, fmt.Errorf("is no JSON value")
}

func (c *checker) list(v []any, depth int) (any, error) {
	l := make([]any, len(v))
	for i, e := range v {
		var err error
		if l[i], err = c.copy(e, depth+1); err != nil {
			return nil, err
		}
	}
	c.total += len(v)
	return l, nil
}

func (c *checker) object(v map[string]any, depth int) (any, error) {
	m := make(map[string]any, len(v))
	for k, e := range v {
		if what := strange(k, false); what != "" {
			return nil, fmt.Errorf("has a key that holds %s", what)
		}
		c.total += len(k)
		var err error
		if m[k], err = c.copy(e, depth+1); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// typed converts command-line text to a type of the rule. If it cannot, it returns v, and the check complains.
func typed(v string, r *rule) any {
	switch {
	case r.has("string"):
		return v
	case r.has("integer") || r.has("number"):
		if _, err := number(json.Number(v)); err == nil {
			return json.Number(v)
		}
	}
	switch {
	case r.has("boolean") && (v == "true" || v == "false"):
		return v == "true"
	case r.has("null") && v == "null":
		return nil
	case r.has("array") && strings.HasPrefix(v, "["), r.has("object") && strings.HasPrefix(v, "{"):
		if j, err := decode(v); err == nil {
			return j
		}
	}
	if r.has("array") {
		if items := r.Items; items == nil || items.real().has("string") {
			return []any{v}
		}
	}
	return v
}

func decode(v string) (any, error) {
	d := json.NewDecoder(strings.NewReader(v))
	d.UseNumber()
	var j any
	if err := d.Decode(&j); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("more than one value")
	}
	return j, nil
}
