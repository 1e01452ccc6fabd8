package pack

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
)

// step is one call of a workflow as written.
type step struct {
	ID       string         `json:"id"`
	Call     string         `json:"call"`
	Input    map[string]any `json:"input,omitempty"`    // strings are templates
	Continue bool           `json:"continue,omitempty"` // if it fails, the workflow continues
}

// Step is one rendered call of a workflow.
type Step struct {
	ID       string
	Call     bailey.CapabilityID
	Input    map[string]any
	Continue bool
	Late     bool // it uses the output of an earlier step, so its input is not known before that step ran
}

// maxSteps limits the steps of a workflow, and maxWrote the output that a step takes from another one, in bytes.
const (
	maxSteps = 16
	maxWrote = 32 << 10
)

var (
	stepID   = lazyRegexp(`^[a-z][a-z0-9-]{0,31}$`)
	fullID   = lazyRegexp(`^[a-z][a-z0-9-]{0,63}\.[a-z][a-z0-9_-]{0,63}$`)
	stepWord = lazyRegexp(`\{\{ *(?:input\.([A-Za-z_][A-Za-z0-9_-]*)|steps\.([a-z][a-z0-9-]*)\.stdout) *\}\}`)
)

// readSteps reads the calls of a workflow, which refer to inputs and to each other.
func (r *reader) readSteps(at *deferredNodes, m *manifest, s *schema) {
	if m.Backend.Type != "workflow" {
		if at.steps != nil {
			r.AddFault(at.steps, "steps are for backend workflow")
		}
		return
	}
	if at.steps == nil {
		r.AddFault(at.backend, "backend workflow needs steps")
		return
	}
	for what, there := range map[string]bool{"sandboxProfile": at.sandbox != nil, "preview": at.preview != nil,
		"credentials": len(m.Credentials) > 0, "argvPattern": at.argv != nil} {
		if there {
			r.AddFault(at.backend, "a workflow has no %s: each of its steps has its own", what)
		}
	}
	for _, name := range s.names {
		if s.props[name].acceptsSecrets() {
			r.AddFault(at.input,
				"input %s of a workflow cannot accept a secret: its steps receive tokens, each decided by itself", name)
		}
	}
	for _, item := range r.Items(at.steps, "steps") {
		m.Backend.Steps = append(m.Backend.Steps, r.readStep(item, m, s))
	}
	if n := len(m.Backend.Steps); n == 0 || n > maxSteps {
		r.AddFault(at.steps, "a workflow must have 1 to %d steps", maxSteps)
	}
}

func (r *reader) readStep(n ast.Node, m *manifest, s *schema) step {
	var one step
	failure := "abort"
	var input ast.Node
	seen := r.Fields(n, "a step", strictyaml.Fields{
		"id":    r.wordField("id", stepID(), &one.ID),
		"call":  r.wordField("call", fullID(), &one.Call),
		"input": func(n ast.Node) { input = n },
		"onFailure": choiceField(r, "onFailure", map[string]string{"abort": "abort", "continue": "continue"},
			&failure),
	})
	r.requireKeys(n, "a step", seen, "id", "call")
	one.Continue = failure == "continue"
	before := func(id string) bool {
		return slices.ContainsFunc(m.Backend.Steps, func(o step) bool { return o.ID == id })
	}
	if before(one.ID) {
		r.AddFault(n, "step %s is here twice", one.ID)
	}
	if input == nil {
		return one
	}
	tree, ok := r.Value(input, "a schema").(map[string]any)
	if !ok {
		r.AddTypeFault(input, "input", "names and values")
		return one
	}
	one.Input = tree
	for _, name := range sortedKeys(tree) {
		for _, text := range stepTexts(tree[name]) {
			if what := stepFault(text, s, before); what != "" {
				r.AddFault(input, "input %s of step %s: %s", strictyaml.Clip(name), one.ID, what)
			}
		}
		if !stepValue(tree[name]) {
			r.AddFault(input, "input %s of step %s must be a word, a number, true, false or a list of words",
				strictyaml.Clip(name), one.ID)
		}
	}
	return one
}

func stepValue(v any) bool {
	switch v := v.(type) {
	case string, bool, json.Number:
		return true
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { _, word := e.(string); return !word })
	}
	return false
}

func stepTexts(v any) (list []string) {
	switch v := v.(type) {
	case string:
		list = append(list, v)
	case []any:
		for _, e := range v {
			list = append(list, stepTexts(e)...)
		}
	}
	return list
}

// stepFault returns the fault of a template in a step, or "".
func stepFault(text string, s *schema, before func(id string) bool) string {
	for _, found := range stepWord().FindAllStringSubmatch(text, -1) {
		switch in := s.props[found[1]]; {
		case found[2] != "" && !before(found[2]):
			return fmt.Sprintf("step %s does not come before it", found[2])
		case found[2] == "" && in == nil:
			return fmt.Sprintf("input.%s is not in the inputSchema%s", found[1], strictyaml.DidYouMean(found[1], s.names))
		case found[2] == "" && found[0] != text && !in.hasOnlyTypes("string", "integer", "number", "boolean"):
			return fmt.Sprintf("input.%s is not a word and cannot be part of a text", found[1])
		}
	}
	if rest := stepWord().ReplaceAllLiteralString(text, ""); strings.Contains(rest, "{{") ||
		strings.Contains(rest, "}}") {
		return fmt.Sprintf("%q is not a placeholder; write {{ input.x }} or {{ steps.x.stdout }}", strictyaml.Clip(text))
	}
	return ""
}

// acceptsSecrets reports whether a secret may be restored in a value of this rule.
func (r *rule) acceptsSecrets() (yes bool) {
	yes = len(r.Secrets) > 0
	r.eachChild(func(c *rule) { yes = yes || c.acceptsSecrets() })
	return yes
}

// StepCount returns the number of calls in a workflow. It is 0 for other capabilities.
func (m *Capability) StepCount() int { return len(m.spec.Backend.Steps) }

// Step renders one call of a workflow. Input must be checked, and paths contains the canonical path of each path input
// that has a value. wrote returns the stdout of an earlier step. If wrote is nil and the step uses such output, the
// result is Late and has no input. If an input of the step consists only of a placeholder without a value, it is
// omitted.
func (m *Capability) Step(i int, input map[string]any, paths map[string]string,
	wrote func(id string) (string, error)) (Step, error) {
	one := m.spec.Backend.Steps[i]
	s := Step{ID: one.ID, Call: bailey.CapabilityID(one.Call), Continue: one.Continue, Input: map[string]any{}}
	value := func(name string) (any, bool) {
		if path, ok := paths[name]; ok {
			return path, true
		}
		v, ok := input[name]
		return v, ok
	}
	for _, name := range sortedKeys(one.Input) {
		if wrote == nil && slices.ContainsFunc(stepTexts(one.Input[name]), usesStep) {
			return Step{ID: s.ID, Call: s.Call, Continue: s.Continue, Late: true}, nil
		}
		v, ok, err := fillStep(one.Input[name], value, wrote)
		if err != nil {
			return s, err
		}
		if ok {
			s.Input[name] = v
		}
	}
	return s, nil
}

func usesStep(text string) bool {
	return slices.ContainsFunc(stepWord().FindAllStringSubmatch(text, -1),
		func(found []string) bool { return found[2] != "" })
}

// fillStep returns the value of a template. ok is false if it has none.
func fillStep(v any, value func(string) (any, bool), wrote func(string) (string, error)) (out any, ok bool, err error) {
	list, many := v.([]any)
	text, word := v.(string)
	switch {
	case many:
		all := []any{}
		for _, e := range list {
			one, ok, err := fillStep(e, value, wrote)
			if err != nil {
				return nil, false, err
			}
			if ok {
				all = append(all, one)
			}
		}
		return all, true, nil
	case !word:
		return v, true, nil
	}
	if found := stepWord().FindStringSubmatch(text); found != nil && found[0] == text && found[1] != "" {
		out, ok = value(found[1])
		return out, ok, nil
	}
	filled := stepWord().ReplaceAllStringFunc(text, func(word string) string {
		found := stepWord().FindStringSubmatch(word)
		if found[1] != "" {
			v, _ := value(found[1])
			return stepText(v)
		}
		said, werr := wrote(found[2])
		if werr == nil && len(said) > maxWrote {
			werr = bailey.Invalid.Errorf("",
				"step %s wrote %d bytes, more than the %d that another accepts", found[2], len(said), maxWrote)
		}
		if werr != nil && err == nil {
			err = werr
		}
		return strings.TrimSuffix(said, "\n")
	})
	return filled, true, err
}

// stepText returns a value as part of a text. A missing value is empty.
func stepText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return jsonText(v)
}
