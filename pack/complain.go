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

// value adds a complaint if v does not satisfy r. Allow contains the allowances of the rules above r.
func (c *checker) value(at string, r *rule, v any, allow []string) {
	r = r.real()
	allow = append(allow[:len(allow):len(allow)], r.Bailey.Allow...)
	if r.never {
		c.complain(at, "takes no value")
		return
	}
	if got := typeOf(v); !r.takes(got) {
		c.complain(at, "%s is not %s", c.brief(v), kinds(r.Type))
		return
	}
	c.listed(at, r, v)
	switch v := v.(type) {
	case string:
		c.text(at, r, v, allow)
	case json.Number:
		c.number(at, r, v)
	case []any:
		c.elements(at, r, v, allow)
	case map[string]any:
		c.members(at, r, v, allow)
	}
	for _, all := range r.AllOf {
		c.value(at, all, v, allow)
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
		if n, err := number(v); err == nil && n.IsInt() {
			return "integer"
		}
	}
	return "number"
}

func (r *rule) takes(t string) bool { return r.has(t) || t == "integer" && r.has("number") }

// kinds returns the types with their articles, for example "an integer or null".
func kinds(ts types) string {
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

// show makes a value of the caller, or a restored one, safe for an error. It redacts the value before it cuts it,
// because a truncated secret cannot be recognised.
func (c *checker) show(v string) string { return show(c.hide(v)) }

// brief is like the function brief, but redacts strings and numbers.
func (c *checker) brief(v any) string {
	switch v := v.(type) {
	case string:
		return `"` + c.show(v) + `"`
	case json.Number:
		return c.show(v.String())
	}
	return brief(v)
}

// brief returns a value in the form of complaints: shortened and escaped.
func brief(v any) string {
	switch v := v.(type) {
	case string:
		return `"` + show(v) + `"`
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case map[string]any:
		return "an object"
	case nil:
		return "null"
	}
	return show(fmt.Sprint(v))
}

func (c *checker) listed(at string, r *rule, v any) {
	if s, text := v.(string); text && c.output && redacted().MatchString(s) {
		return
	}
	if r.Enum == nil || slices.ContainsFunc(r.Enum, func(e any) bool { return equal(e, v) }) {
		return
	}
	var words []string
	for i, e := range r.Enum {
		if i == 16 {
			words = append(words, "…")
			break
		}
		words = append(words, brief(e))
	}
	c.complain(at, "%s is not one of %s", c.brief(v), strings.Join(words, ", "))
}

// equal compares JSON values. It compares numbers by value.
func equal(a, b any) bool {
	an, ok1 := a.(json.Number)
	bn, ok2 := b.(json.Number)
	if ok1 && ok2 {
		x, err1 := number(an)
		y, err2 := number(bn)
		return err1 == nil && err2 == nil && x.Cmp(y) == 0
	}
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

func (c *checker) text(at string, r *rule, v string, allow []string) {
	if c.output && redacted().MatchString(v) { // the original text is unknown, so its rules cannot be checked
		return
	}
	if what := c.unfit(r, v, allow); what != "" {
		c.complain(at, "%s %s", c.brief(v), what)
		return
	}
	n := utf8.RuneCountInString(v)
	if r.MinLength != nil && n < *r.MinLength {
		c.complain(at, "%s is shorter than %d characters", c.brief(v), *r.MinLength)
	}
	if r.MaxLength != nil && n > *r.MaxLength {
		c.complain(at, "%s is longer than %d characters", c.brief(v), *r.MaxLength)
	}
	if r.matches != nil && !r.matches.MatchString(v) {
		c.complain(at, "%s does not match %s", c.brief(v), show(r.Pattern))
	}
}

// unfit returns the fault of a text by itself, or "".
func (c *checker) unfit(r *rule, v string, allow []string) string {
	switch {
	case c.output && r.Format == "subpath" && !subpath(v):
		return "is not a relative path without .."
	case c.output:
		return misplaced(r.Format, v)
	case r.stream:
		return streamed(v)
	}
	return word(v, r, allow)
}

func (c *checker) number(at string, r *rule, v json.Number) {
	n, err := number(v)
	if err != nil {
		c.complain(at, "%s is not a number within range", c.brief(v))
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
		if limit, err := number(b.bound); err == nil && b.fails(cmp(n, limit)) {
			c.complain(at, "%s is %s %s", c.brief(v), b.words, b.bound)
		}
	}
}

func cmp(a, b *big.Rat) int { return a.Cmp(b) }

func (c *checker) elements(at string, r *rule, v []any, allow []string) {
	if r.MinItems != nil && len(v) < *r.MinItems {
		c.complain(at, "has %d items, wants at least %d", len(v), *r.MinItems)
	}
	if r.MaxItems != nil && len(v) > *r.MaxItems {
		c.complain(at, "has %d items, wants at most %d", len(v), *r.MaxItems)
	}
	for i, e := range v {
		if len(c.complaints) > maxComplaints {
			return
		}
		c.value(at+"/"+strconv.Itoa(i), orAny(r.Items), e, allow)
	}
}

func (c *checker) members(at string, r *rule, v map[string]any, allow []string) {
	for _, name := range r.Required {
		if _, ok := v[name]; !ok {
			c.complaints = append(c.complaints, c.about+c.show(at+"/"+name)+" is missing")
		}
	}
	for _, name := range keys(v) {
		if len(c.complaints) > maxComplaints {
			return
		}
		sub, ok := r.Properties[name]
		if !ok {
			sub = orAny(r.Closed)
		}
		if sub.never {
			c.complaints = append(c.complaints, c.about+c.show(at+"/"+name)+" is not known")
			continue
		}
		c.value(at+"/"+name, sub, v[name], allow)
	}
}

// orAny replaces an absent schema with one that allows every type. The rules for values still apply.
func orAny(r *rule) *rule {
	if r == nil {
		return &rule{}
	}
	return r
}

// blame adds a complaint for an error that only the library found. The complaint is about the one input with the failed
// combinator, or about all inputs.
func (c *checker) blame(m *Capability, input map[string]any, err error) {
	for _, name := range keys(input) {
		if p := m.schema.props[name]; strings.Contains(err.Error(), "/properties/"+name) && p.combines() {
			c.complain("/"+name, "%s does not satisfy the combined schemas of this input", c.brief(input[name]))
			return
		}
	}
	c.complain("", "the inputs together do not satisfy the schema of %s: %s", m.ID, c.show(err.Error()))
}

func (r *rule) combines() bool {
	return r.AnyOf != nil || r.OneOf != nil || r.Not != nil || r.If != nil
}
