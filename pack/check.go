package pack

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"bailey"
	"bailey/internal/strictjson"
	"bailey/internal/strictyaml"
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
	if best := strictyaml.ClosestWord(name, m.schema.names); best != "" && c.hint == "" {
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

func decodeJSON(v string) (j any, err error) {
	err = strictjson.Decode([]byte(v), &j)
	return j, err
}

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
