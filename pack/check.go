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
		if c.hasEnough() {
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
		c.checkRounded(m.schema.root, clean)
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
	redacted   bool   // the output has redaction tokens, so only rules that [Capability.OutputShape] shows are checked
	inner      bool   // the rule is part of another one, so only whether there is a complaint counts
	rounded    bool   // numbers have 64 bits
	hide       func(string) string
	complaints []string
	first      string // the input of the first complaint, if it is about one
	hint       string
	total      int // bytes
}

func (c *checker) addComplaint(at, format string, args ...any) {
	if at == "" {
		at = "/"
	}
	c.addText(at, ": "+format, args...)
}

// addText adds a complaint that begins with a JSON pointer.
func (c *checker) addText(at, format string, args ...any) {
	if c.first == "" {
		c.first, _, _ = strings.Cut(strings.TrimPrefix(at, "/"), "/")
	}
	c.complaints = append(c.complaints, c.about+c.redactedText(at)+fmt.Sprintf(format, args...))
}

// refuseValue adds a complaint that begins with the value.
func (c *checker) refuseValue(at string, v any, format string, args ...any) {
	c.addComplaint(at, "%s "+format, append([]any{c.briefRedacted(v)}, args...)...)
}

// hasEnough reports whether the check can stop.
func (c *checker) hasEnough() bool {
	return len(c.complaints) > maxComplaints || c.inner && len(c.complaints) > 0
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
		hint = m.inputsHint(c.first)
	}
	return bailey.Invalid.New(strings.Join(list, "; "), hint)
}

// inputsHint says what an input is for. Agents that speak MCP have no shell, but the schema of each tool.
func (m *Capability) inputsHint(input string) string {
	hint := fmt.Sprintf("bailey capabilities show %s, or the schema of the tool, describes the inputs", m.ID)
	p := m.schema.props[input]
	if p == nil || p.Description == "" {
		return hint
	}
	value := ""
	if p.Const != nil {
		value = fmt.Sprintf(" (always %v)", p.Const[0])
	} else if len(p.Enum) == 1 {
		value = fmt.Sprintf(" (always %v)", p.Enum[0])
	}
	return fmt.Sprintf("%s: %s%s; %s", input, p.Description, value, hint)
}

// neededInputs returns the alternatives of a rule that asks for one of several inputs, or "".
func neededInputs(list []*rule) string {
	var needs []string
	for _, r := range list {
		if len(r.Required) == 0 {
			return ""
		}
		needs = append(needs, strings.Join(r.Required, " and "))
	}
	return strings.Join(needs, ", or ")
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
		c.total += len(v)
		l := make([]any, len(v))
		for i, e := range v {
			var err error
			if l[i], err = c.copyValue(e, depth+1); err != nil {
				return nil, err
			}
		}
		return l, nil
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			if what := describeHiddenChar(k, false); what != "" {
				return nil, fmt.Errorf("has a key that contains %s", what)
			}
			c.total += len(k)
			var err error
			if m[k], err = c.copyValue(e, depth+1); err != nil {
				return nil, err
			}
		}
		return m, nil
	}
	return nil, fmt.Errorf("is not a JSON value")
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
	if !r.acceptsType(c.typeOf(v)) {
		c.refuseValue(at, v, "is not %s", describeTypes(r.Type))
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
	if len(c.complaints) == 0 && !c.redacted {
		c.checkWhole(at, r, v)
	}
}

// checkWhole checks the rules about a value as a whole, which do not hold for redacted output.
func (c *checker) checkWhole(at string, r *rule, v any) {
	list, _ := v.([]any)
	members, isObject := v.(map[string]any)
	branch := r.Else
	if r.If == nil || c.satisfies(r.If, v) {
		branch = r.Then
	}
	for _, k := range []struct {
		word     string
		combines bool
		broken   bool
	}{
		{"const", false, r.Const != nil && !c.isEqual(r.Const[0], v)},
		{"uniqueItems", false, r.Unique && c.hasDuplicates(list)},
		{"minProperties", false, isObject && len(members) < r.MinMembers},
		{"maxProperties", false, isObject && r.MaxMembers != nil && len(members) > *r.MaxMembers},
		{"anyOf", true, r.AnyOf != nil && c.countSatisfied(r.AnyOf, v) == 0},
		{"oneOf", true, r.OneOf != nil && c.countSatisfied(r.OneOf, v) != 1},
		{"not", true, r.Not != nil && c.satisfies(r.Not, v)},
		{"if", true, r.If != nil && branch != nil && !c.satisfies(branch, v)},
	} {
		switch {
		case !k.broken:
			continue
		case c.output:
			c.refuseValue(at, v, "does not satisfy the rule %s", k.word)
		case k.combines && at != "":
			c.refuseValue(at, v, "does not satisfy the combined schemas of this input")
		case k.word == "anyOf" && neededInputs(r.AnyOf) != "":
			c.addComplaint("", "%s needs %s", c.id, neededInputs(r.AnyOf))
		default:
			c.addComplaint("", "the inputs together do not satisfy the schema of %s: %s%s", c.id,
				strings.TrimPrefix(c.redactedText(at)+" ", " "), k.word)
		}
		return
	}
}

// satisfies reports whether v satisfies r as a part of another rule. Like in other implementations of JSON Schema,
// formats and the rules for texts have no effect there.
func (c *checker) satisfies(r *rule, v any) bool {
	part := checker{inner: true, rounded: c.rounded, hide: func(string) string { return "" }}
	part.checkValue("", r, v, nil)
	return len(part.complaints) == 0
}

func (c *checker) countSatisfied(list []*rule, v any) (n int) {
	for _, r := range list {
		if c.satisfies(r, v) {
			n++
		}
	}
	return n
}

// checkRounded checks v once more, with numbers of 64 bits, because some tools read them so.
func (c *checker) checkRounded(r *rule, v any) {
	if c.rounded = true; len(c.complaints) == 0 && !c.redacted && !c.satisfies(r, v) {
		c.addComplaint("", "a number does not satisfy the schema of %s if it is read as one of 64 bits", c.id)
	}
}

// value returns the value of a number, and limit that of a number in the schema.
func (c *checker) value(n json.Number) (*big.Rat, error) {
	if i, err := n.Int64(); c.rounded && err == nil {
		return new(big.Rat).SetInt64(i), nil
	}
	return c.limit(n)
}

func (c *checker) limit(n json.Number) (*big.Rat, error) {
	f, err := n.Float64()
	if !c.rounded || err != nil {
		return parseNumber(n)
	}
	return new(big.Rat).SetFloat64(f), nil
}

// typeOf returns the JSON type of v. Whole numbers are integers.
func (c *checker) typeOf(v any) string {
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
		if n, err := c.value(v); err == nil && n.IsInt() {
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
	if r.Enum == nil || slices.ContainsFunc(r.Enum, func(e any) bool { return c.isEqual(e, v) }) {
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
	c.refuseValue(at, v, "is not one of %s", strings.Join(words, ", "))
}

// isEqual compares v with a value of the schema.
func (c *checker) isEqual(known, v any) bool {
	return plainText(known, c.limit) == plainText(v, c.value)
}

func (c *checker) hasDuplicates(list []any) bool {
	seen := make(map[string]bool, len(list))
	for _, e := range list {
		seen[plainText(e, c.value)] = true
	}
	return len(seen) < len(list)
}

// plainText returns JSON that is the same for equal values. The function number returns the value of a number.
func plainText(v any, number func(json.Number) (*big.Rat, error)) string {
	var parts []string
	switch v := v.(type) {
	case json.Number:
		n, err := number(v)
		if err != nil {
			return string(v)
		}
		digits, _ := n.FloatPrec()
		return n.FloatString(digits)
	case []any:
		for _, e := range v {
			parts = append(parts, plainText(e, number))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case map[string]any:
		for _, name := range sortedKeys(v) {
			parts = append(parts, jsonText(name)+":"+plainText(v[name], number))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return jsonText(v)
}

func (c *checker) checkText(at string, r *rule, v string, allow []string) {
	if c.output && redactionToken().MatchString(v) { // the original text is unknown, so its rules cannot be checked
		return
	}
	if what := c.textFault(r, v, allow); what != "" {
		c.refuseValue(at, v, "%s", what)
		return
	}
	n := utf8.RuneCountInString(v)
	if r.MinLength != nil && n < *r.MinLength {
		c.refuseValue(at, v, "is shorter than %d characters", *r.MinLength)
	}
	if r.MaxLength != nil && n > *r.MaxLength {
		c.refuseValue(at, v, "is longer than %d characters", *r.MaxLength)
	}
	if r.matches != nil && !r.matches().MatchString(v) {
		c.refuseValue(at, v, "does not match %s", safeText(r.Pattern))
	}
}

// textFault returns the fault of a text by itself, or "".
func (c *checker) textFault(r *rule, v string, allow []string) string {
	switch {
	case c.inner:
		return ""
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
	n, err := c.value(v)
	if err != nil {
		c.refuseValue(at, v, "is not a number within range")
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
		if limit, err := c.limit(b.bound); err == nil && b.fails(n.Cmp(limit)) {
			c.refuseValue(at, v, "is %s %s", b.words, b.bound)
		}
	}
}

func (c *checker) checkElements(at string, r *rule, v []any, allow []string) {
	if r.MinItems != nil && len(v) < *r.MinItems {
		c.addComplaint(at, "has %d items, but needs at least %d", len(v), *r.MinItems)
	}
	if r.MaxItems != nil && len(v) > *r.MaxItems {
		c.addComplaint(at, "has %d items, but may have at most %d", len(v), *r.MaxItems)
	}
	for i, e := range v {
		if c.hasEnough() {
			return
		}
		c.checkValue(at+"/"+strconv.Itoa(i), orAny(r.Items), e, allow)
	}
}

func (c *checker) checkMembers(at string, r *rule, v map[string]any, allow []string) {
	for _, name := range r.Required {
		if _, ok := v[name]; !ok {
			c.addText(at+"/"+name, " is missing")
		}
	}
	for _, name := range sortedKeys(v) {
		if c.hasEnough() {
			return
		}
		sub, ok := r.Properties[name]
		if !ok {
			sub = orAny(r.Closed)
		}
		if sub.never {
			c.addText(at+"/"+name, " is not known")
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
