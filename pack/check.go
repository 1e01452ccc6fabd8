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
	input = m.withFolders(input)
	c := &checker{id: string(m.ID), about: "input ", hide: m.redactText}
	clean := make(map[string]any, len(input))
	for _, name := range sortedKeys(input) {
		if len(c.complaints) > maxComplaints {
			break
		}
		p, ok := m.schema.props[name]
		if !ok {
			c.addUnknownInput(m, name)
			continue
		}
		v := input[name]
		if s, ok := v.(string); ok && text {
			v = convertText(s, p)
		}
		v, err := c.copyValue(v, 0)
		if err != nil {
			c.addComplaint("/"+name, "%s", err)
			continue
		}
		clean[name] = v
	}
	if c.total > maxTotal {
		c.addComplaint("", "has %d bytes, more than %d", c.total, maxTotal)
	}
	if len(c.complaints) == 0 {
		c.checkValue("", m.schema.root, clean, nil)
	}
	if len(c.complaints) == 0 {
		if err := m.schema.validateWithLibrary(clean); err != nil {
			c.addLibraryError(m, clean, err)
		}
	}
	if len(c.complaints) == 0 {
		c.checkRequiredKeys(m, clean)
	}
	if len(c.complaints) > 0 {
		return nil, c.toError(m)
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

func (c *checker) addComplaint(at, format string, args ...any) {
	c.complaints = append(c.complaints, c.about+c.formatPointer(at)+" "+fmt.Sprintf(format, args...))
}

// formatPointer returns a JSON pointer in the form of complaints.
func (c *checker) formatPointer(at string) string {
	if at == "" {
		return "/:"
	}
	return c.redactedText(at) + ":"
}

func (c *checker) addUnknownInput(m *Capability, name string) {
	takes := "takes no inputs"
	if len(m.schema.names) > 0 {
		takes = "takes " + strings.Join(m.schema.names, ", ")
	}
	c.complaints = append(c.complaints,
		fmt.Sprintf("input \"%s\" is not known; %s %s", c.redactedText(name), m.ID, takes))
	if best := closestWord(name, m.schema.names); best != "" && c.hint == "" {
		c.hint = fmt.Sprintf("did you mean %q?", best)
	}
}

func (c *checker) toError(m *Capability) error {
	list := c.complaints
	if len(list) > maxComplaints {
		list = append(list[:maxComplaints:maxComplaints], "and more complaints")
	}
	hint := c.hint
	if hint == "" {
		hint = fmt.Sprintf("bailey capabilities show %s lists the inputs and their types", m.ID)
	}
	return bailey.Invalid.New(strings.Join(list, "; "), hint)
}

// copyValue returns a deep, size-limited copy of v with JSON types only.
func (c *checker) copyValue(v any, depth int) (any, error) {
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
		n, err := normalizeNumber(v)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number within range", c.redactedText(string(v)))
		}
		return n, nil
	case int, int64, float64:
		b, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("is not a number")
		}
		return c.copyValue(json.Number(b), depth)
	case []any:
		return c.copyList(v, depth)
	case map[string]any:
		return c.copyObject(v, depth)
	}
	return nil, fmt.Errorf("is no JSON value")
}

func (c *checker) copyList(v []any, depth int) (any, error) {
	l := make([]any, len(v))
	for i, e := range v {
		var err error
		if l[i], err = c.copyValue(e, depth+1); err != nil {
			return nil, err
		}
	}
	c.total += len(v)
	return l, nil
}

func (c *checker) copyObject(v map[string]any, depth int) (any, error) {
	m := make(map[string]any, len(v))
	for k, e := range v {
		if what := describeHiddenChar(k, false); what != "" {
			return nil, fmt.Errorf("has a key that holds %s", what)
		}
		c.total += len(k)
		var err error
		if m[k], err = c.copyValue(e, depth+1); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// convertText converts command-line text to a type of the rule. If it cannot, it returns v, and the check complains.
func convertText(v string, r *rule) any {
	switch {
	case r.hasType("string"):
		return v
	case r.hasType("integer") || r.hasType("number"):
		if _, err := parseNumber(json.Number(v)); err == nil {
			return json.Number(v)
		}
	}
	switch {
	case r.hasType("boolean") && (v == "true" || v == "false"):
		return v == "true"
	case r.hasType("null") && v == "null":
		return nil
	case r.hasType("array") && strings.HasPrefix(v, "["), r.hasType("object") && strings.HasPrefix(v, "{"):
		if j, err := decodeJSON(v); err == nil {
			return j
		}
	}
	if r.hasType("array") {
		if items := r.Items; items == nil || items.followRef().hasType("string") {
			return []any{v}
		}
	}
	return v
}

func decodeJSON(v string) (any, error) {
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
