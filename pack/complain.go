package pack

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// checkValue adds a complaint if v does not satisfy r. Allow contains the allowances of the rules above r.
func (c *checker) checkValue(at string, r *rule, v any, allow []string) {
	r = r.followRef()
	allow = append(allow[:len(allow):len(allow)], r.Bailey.Allow...)
	if r.never {
		c.addComplaint(at, "takes no value")
		return
	}
	if got := typeOf(v); !r.acceptsType(got) {
		c.addComplaint(at, "%s is not %s", c.briefRedacted(v), describeTypes(r.Type))
		return
	}
	c.checkEnum(at, r, v)
	switch v := v.(type) {
	case string:
		c.checkText(at, r, v, allow)
	case json.Number:
		c.checkNumber(at, r, v)
	case []any:
		c.checkElements(at, r, v, allow)
	case map[string]any:
		c.checkMembers(at, r, v, allow)
	}
	for _, all := range r.AllOf {
		c.checkValue(at, all, v, allow)
	}
}

// typeOf returns the JSON type of v. Whole numbers are integers.
func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case json.Number:
		if n, err := parseNumber(v); err == nil && n.IsInt() {
			return "integer"
		}
	}
	return "number"
}

func (r *rule) acceptsType(t string) bool {
	return r.hasType(t) || t == "integer" && r.hasType("number")
}

// describeTypes returns the types with their articles, for example "an integer or null".
func describeTypes(ts typeList) string {
	var words []string
	for _, t := range ts {
		switch t {
		case "array":
			words = append(words, "a list")
		case "integer", "object":
			words = append(words, "an "+t)
		case "null":
			words = append(words, t)
		default:
			words = append(words, "a "+t)
		}
	}
	return strings.Join(words, " or ")
}

// redactedText makes a value of the caller, or a restored one, safe for an error. It redacts the value before it cuts it,
// because a truncated secret cannot be recognised.
func (c *checker) redactedText(v string) string { return safeText(c.hide(v)) }

// briefRedacted is like the function brief, but redacts strings and numbers.
func (c *checker) briefRedacted(v any) string {
	switch v := v.(type) {
	case string:
		return `"` + c.redactedText(v) + `"`
	case json.Number:
		return c.redactedText(v.String())
	}
	return briefValue(v)
}

// briefValue returns a value in the form of complaints: shortened and escaped.
func briefValue(v any) string {
	switch v := v.(type) {
	case string:
		return `"` + safeText(v) + `"`
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case map[string]any:
		return "an object"
	case nil:
		return "null"
	}
	return safeText(fmt.Sprint(v))
}

func (c *checker) checkEnum(at string, r *rule, v any) {
	if s, text := v.(string); text && c.output && redactionToken().MatchString(s) {
		return
	}
	if r.Enum == nil || slices.ContainsFunc(r.Enum, func(e any) bool { return equalJSON(e, v) }) {
		return
	}
	var words []string
	for i, e := range r.Enum {
		if i == 16 {
			words = append(words, "…")
			break
		}
		words = append(words, briefValue(e))
	}
	c.addComplaint(at, "%s is not one of %s", c.briefRedacted(v), strings.Join(words, ", "))
}

// equalJSON compares JSON values. It compares numbers by value.
func equalJSON(a, b any) bool {
	an, ok1 := a.(json.Number)
	bn, ok2 := b.(json.Number)
	if ok1 && ok2 {
		x, err1 := parseNumber(an)
		y, err2 := parseNumber(bn)
		return err1 == nil && err2 == nil && x.Cmp(y) == 0
	}
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

func (c *checker) checkText(at string, r *rule, v string, allow []string) {
	if c.output && redactionToken().MatchString(v) { // the original text is unknown, so its rules cannot be checked
		return
	}
	if what := c.textFault(r, v, allow); what != "" {
		c.addComplaint(at, "%s %s", c.briefRedacted(v), what)
		return
	}
	n := utf8.RuneCountInString(v)
	if r.MinLength != nil && n < *r.MinLength {
		c.addComplaint(at, "%s is shorter than %d characters", c.briefRedacted(v), *r.MinLength)
	}
	if r.MaxLength != nil && n > *r.MaxLength {
		c.addComplaint(at, "%s is longer than %d characters", c.briefRedacted(v), *r.MaxLength)
	}
	if r.matches != nil && !r.matches.MatchString(v) {
		c.addComplaint(at, "%s does not match %s", c.briefRedacted(v), safeText(r.Pattern))
	}
}

// textFault returns the fault of a text by itself, or "".
func (c *checker) textFault(r *rule, v string, allow []string) string {
	switch {
	case c.output && r.Format == "subpath" && !isSubpath(v):
		return "is not a relative path without .."
	case c.output:
		return locationFault(r.Format, v)
	case r.stream:
		return stdinFault(v)
	}
	return inputTextFault(v, r, allow)
}

func (c *checker) checkNumber(at string, r *rule, v json.Number) {
	n, err := parseNumber(v)
	if err != nil {
		c.addComplaint(at, "%s is not a number within range", c.briefRedacted(v))
		return
	}
	for _, b := range []struct {
		bound json.Number
		words string
		fails func(int) bool
	}{
		{r.Minimum, "less than", func(d int) bool { return d < 0 }},
		{r.Maximum, "more than", func(d int) bool { return d > 0 }},
		{r.Above, "not more than", func(d int) bool { return d <= 0 }},
		{r.Below, "not less than", func(d int) bool { return d >= 0 }},
	} {
		if limit, err := parseNumber(b.bound); err == nil && b.fails(compareRats(n, limit)) {
			c.addComplaint(at, "%s is %s %s", c.briefRedacted(v), b.words, b.bound)
		}
	}
}

func compareRats(a, b *big.Rat) int { return a.Cmp(b) }

func (c *checker) checkElements(at string, r *rule, v []any, allow []string) {
	if r.MinItems != nil && len(v) < *r.MinItems {
		c.addComplaint(at, "has %d items, wants at least %d", len(v), *r.MinItems)
	}
	if r.MaxItems != nil && len(v) > *r.MaxItems {
		c.addComplaint(at, "has %d items, wants at most %d", len(v), *r.MaxItems)
	}
	for i, e := range v {
		if len(c.complaints) > maxComplaints {
			return
		}
		c.checkValue(at+"/"+strconv.Itoa(i), orAny(r.Items), e, allow)
	}
}

func (c *checker) checkMembers(at string, r *rule, v map[string]any, allow []string) {
	for _, name := range r.Required {
		if _, ok := v[name]; !ok {
			c.complaints = append(c.complaints, c.about+c.redactedText(at+"/"+name)+" is missing")
		}
	}
	for _, name := range sortedKeys(v) {
		if len(c.complaints) > maxComplaints {
			return
		}
		sub, ok := r.Properties[name]
		if !ok {
			sub = orAny(r.Closed)
		}
		if sub.never {
			c.complaints = append(c.complaints, c.about+c.redactedText(at+"/"+name)+" is not known")
			continue
		}
		c.checkValue(at+"/"+name, sub, v[name], allow)
	}
}

// orAny replaces an absent schema with one that allows every type. The rules for values still apply.
func orAny(r *rule) *rule {
	if r == nil {
		return &rule{}
	}
	return r
}

// addLibraryError adds a complaint for an error that only the library found. The complaint is about the one input with the failed
// combinator, or about all inputs.
func (c *checker) addLibraryError(m *Capability, input map[string]any, err error) {
	for _, name := range sortedKeys(input) {
		if p := m.schema.props[name]; strings.Contains(err.Error(), "/properties/"+name) && p.hasCombinators() {
			c.addComplaint("/"+name, "%s does not satisfy the combined schemas of this input",
				c.briefRedacted(input[name]))
			return
		}
	}
	c.addComplaint("", "the inputs together do not satisfy the schema of %s: %s", m.ID, c.redactedText(err.Error()))
}

func (r *rule) hasCombinators() bool {
	return r.AnyOf != nil || r.OneOf != nil || r.Not != nil || r.If != nil
}
