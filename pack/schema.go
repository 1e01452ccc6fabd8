package pack

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey/internal/strictyaml"
)

// Limits of a schema. The weight is the number of subschemas with every $ref followed, so a small file cannot cause an
// exponential check.
const (
	maxSchema = 64 << 10 // bytes of JSON
	maxDepth  = 16       // nested subschemas, with refs followed
	maxWeight = 4096
	maxInputs = 64
)

// schema is a compiled inputSchema.
type schema struct {
	root     *rule
	props    map[string]*rule // inputs, with $ref followed
	names    []string         // sorted
	stdin    string           // text or file if the input with that name is standard input
	defaults []*rule          // rules with a default
}

// readSchema compiles the inputSchema at n. A capability without one takes no inputs.
func (r *reader) readSchema(owner, n ast.Node, m *manifest) *schema {
	before := len(r.Faults)
	tree := map[string]any{}
	if n != nil {
		k := &keywordChecker{reader: r, defs: r.defNames(n)}
		k.checkSchema(n, "inputSchema", 0)
		if len(r.Faults) > before {
			return nil
		}
		tree, _ = r.Value(n, "a schema").(map[string]any)
	} else {
		n = owner
	}
	r.closeTopLevel(n, tree)
	if len(r.Faults) > before {
		return nil
	}
	raw, err := json.Marshal(tree)
	if err != nil || len(raw) > maxSchema {
		r.AddFault(n, "inputSchema is larger than %d bytes", maxSchema)
		return nil
	}
	s, err := compileSchema(raw)
	if err != nil {
		r.AddFault(n, "inputSchema: %s", safeText(err.Error()))
		return nil
	}
	m.InputSchema = raw
	return s
}

// closeTopLevel restricts the top level to an object without unknown inputs.
func (r *reader) closeTopLevel(n ast.Node, tree map[string]any) {
	if t, ok := tree["type"]; ok && t != "object" {
		r.AddFault(n, "inputSchema must have type object at the top")
	}
	if a, ok := tree["additionalProperties"]; ok && a != false {
		r.AddFault(n, "inputSchema is closed at the top: additionalProperties must be false")
	}
	tree["type"], tree["additionalProperties"] = "object", false
	props, ok := tree["properties"].(map[string]any)
	if !ok {
		props = map[string]any{}
		tree["properties"] = props
	}
	if len(props) > maxInputs {
		r.AddFault(n, "inputSchema has more than %d inputs", maxInputs)
	}
	for _, name := range sortedKeys(props) {
		if !inputName().MatchString(name) {
			r.AddFault(n, "input name %q does not match %s", strictyaml.Clip(name), inputName())
		}
	}
	required, _ := tree["required"].([]any)
	for _, name := range required {
		if _, ok := props[fmt.Sprint(name)]; !ok {
			r.AddFault(n, "inputSchema requires %q, which is not a property", strictyaml.Clip(fmt.Sprint(name)))
		}
	}
}

// compileSchema builds the rules from checked JSON.
func compileSchema(raw []byte) (*schema, error) {
	s := &schema{root: &rule{}, props: map[string]*rule{}}
	if err := json.Unmarshal(raw, s.root); err != nil {
		return nil, err
	}
	if err := s.linkRule(s.root, 0); err != nil {
		return nil, err
	}
	// Unused definitions count too, because their defaults are checked.
	for _, name := range sortedKeys(s.root.Defs) {
		if err := checkWeight(s.root.Defs[name]); err != nil {
			return nil, err
		}
	}
	if err := checkWeight(s.root); err != nil {
		return nil, err
	}
	for _, r := range s.defaults {
		if v := r.Default[0]; !new(checker).satisfies(r, v) {
			return nil, fmt.Errorf("the default %s does not satisfy its schema", briefValue(v))
		}
	}
	for name, p := range s.root.Properties {
		s.props[name] = p.followRef()
	}
	s.names = sortedKeys(s.props)
	return s, nil
}

// linkRule compiles the patterns and sets the target of every $ref. It does not follow them.
func (s *schema) linkRule(r *rule, depth int) (err error) {
	if depth > 4*maxDepth {
		return fmt.Errorf("subschemas are nested deeper than %d", maxDepth)
	}
	for _, name := range sortedKeys(r.Defs) {
		if err := s.linkRule(r.Defs[name], depth+1); err != nil {
			return err
		}
	}
	r.eachChild(func(c *rule) {
		if err == nil {
			err = s.linkRule(c, depth+1)
		}
	})
	if name, ok := strings.CutPrefix(r.Ref, "#/$defs/"); ok {
		r.target = s.root.Defs[name]
	}
	if r.Pattern != "" && err == nil {
		// Compiling all patterns of the built-in packs takes longer than most calls, so only their syntax is checked here.
		_, err = syntax.Parse(r.Pattern, syntax.Perl)
		r.matches = lazyRegexp(r.Pattern)
	}
	if r.Default != nil {
		s.defaults = append(s.defaults, r)
	}
	if r.Bailey.Options != "" && err == nil {
		var wrong string
		if r.options, wrong = parseOptionTable(r.Bailey.Options); wrong != "" {
			err = errors.New("x-bailey options: " + wrong)
		}
	}
	return err
}

// checkWeight refuses cycles, and depth or weight above the limits, with every $ref followed.
func checkWeight(r *rule) error {
	w := weightCheck{open: map[*rule]bool{}}
	return w.visitRule(r, 0)
}

// weightCheck is the state of one weigh: the rules on the current path and the number of visited rules.
type weightCheck struct {
	open map[*rule]bool
	sum  int
}

func (w *weightCheck) visitRule(r *rule, depth int) (err error) {
	w.sum++
	switch {
	case w.open[r]:
		return fmt.Errorf("a $ref leads back to itself")
	case depth > maxDepth:
		return fmt.Errorf("subschemas are nested deeper than %d", maxDepth)
	case w.sum > maxWeight:
		return fmt.Errorf("has more than %d subschemas with every $ref followed", maxWeight)
	}
	w.open[r] = true
	r.eachChild(func(c *rule) {
		if err == nil {
			err = w.visitRule(c, depth+1)
		}
	})
	delete(w.open, r)
	return err
}
