package pack

import (
	"path"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
)

// validator is a condition for a call in addition to its schema.
type validator struct {
	Type  string   `json:"type"`
	Input string   `json:"input,omitempty"`
	Path  string   `json:"path,omitempty"` // for RequiredPath: path below the input
	Key   string   `json:"key,omitempty"`  // for RequiredInputKey
	Args  []string `json:"args,omitempty"` // for DenyArgs
}

const (
	requiredPath     = "RequiredPath"
	requiredInputKey = "RequiredInputKey"
	denyArgs         = "DenyArgs"
)

var validatorTypes = map[string]string{requiredPath: requiredPath, requiredInputKey: requiredInputKey,
	denyArgs: denyArgs}

const maxValidators = 16

// Required is a path that must exist below a place of the call.
type Required struct {
	Input string // input of the place; "" means the workspace
	Path  string // relative, clean; "" means the place itself
}

// Requires returns the paths that must exist below the opened places.
func (m *Capability) Requires() (list []Required) {
	for _, v := range m.spec.Validators {
		if v.Type == requiredPath {
			list = append(list, Required{v.Input, v.Path})
		}
	}
	return list
}

// Missing returns the error for a call without a required path.
func (m *Capability) Missing(r Required) error {
	in := "the working directory"
	if r.Input != "" {
		in = "input /" + r.Input
	}
	if r.Path == "" {
		return m.invalidError("%s is missing, and %s requires it", in, m.ID)
	}
	return bailey.Invalid.Errorf("name a directory that has it",
		"%s does not contain %s, and %s requires it", in, r.Path, m.ID)
}

// checkRequiredKeys adds complaints for missing inputs that RequiredInputKey requires.
func (c *checker) checkRequiredKeys(m *Capability, input map[string]any) {
	for _, v := range m.spec.Validators {
		if v.Type != requiredInputKey {
			continue
		}
		at, from := "", input
		if v.Input != "" {
			at = "/" + v.Input
			from, _ = input[v.Input].(map[string]any)
		}
		if value, ok := from[v.Key]; !ok || value == nil {
			c.addText(at+"/"+v.Key, " is missing, and a validator requires it")
		}
	}
}

// checkDeniedArgs refuses arguments that DenyArgs lists, at any position and from any source.
func (m *Capability) checkDeniedArgs(args []string) error {
	for _, v := range m.spec.Validators {
		if v.Type != denyArgs {
			continue
		}
		for _, arg := range args {
			for _, no := range v.Args {
				if mayMeanArg(arg, no) {
					return bailey.Denied.Errorf("leave it out: only another manifest can allow it, not a rule",
						"the argument \"%s\" may mean %s, which %s never passes", safeText(m.redactText(arg)), no, m.ID)
				}
			}
		}
	}
	return nil
}

// mayMeanArg reports whether a program could interpret arg as the argument no. In doubt it returns true. A long option may
// have a value after =, be abbreviated (getopt_long(3)) and have one or two dashes (getopt_long_only(3), package flag
// of Go). A short one may be combined with others in one word (getopt(3)).
func mayMeanArg(arg, no string) bool {
	if arg == no {
		return true
	}
	name := strings.TrimLeft(no, "-")
	dashes := len(no) - len(name)
	word, _, _ := strings.Cut(arg, "=")
	given := strings.TrimLeft(word, "-")
	had := len(word) - len(given)
	switch {
	case dashes == 0 || had == 0 || had > 2 || given == "":
		return false
	case given == name:
		return true
	case len(name) == 1: // a short option
		return had == 1 && strings.Contains(arg[1:], name)
	}
	return (had == 2 || len(given) > 1) && strings.HasPrefix(name, given)
}

// readValidators reads the key of that name. It runs after the schema, because the key refers to inputs.
func (r *reader) readValidators(n ast.Node, m *manifest, s *schema) {
	if n == nil {
		return
	}
	items := r.Items(n, "validators")
	if len(items) > maxValidators {
		r.AddFault(n, "a capability can have at most %d validators, not %d", maxValidators, len(items))
		return
	}
	for _, item := range items {
		var v validator
		before := len(r.Faults)
		seen := r.Fields(item, "a validator", strictyaml.Fields{
			"type":  choiceField(r, "type", validatorTypes, &v.Type),
			"input": r.wordField("input", inputName(), &v.Input),
			"path":  strictyaml.TextField(r.File, "path", &v.Path),
			"key":   strictyaml.TextField(r.File, "key", &v.Key),
			"args":  strictyaml.TextsField(r.File, "args", &v.Args),
		})
		r.requireKeys(item, "a validator", seen, "type")
		if len(r.Faults) > before {
			continue
		}
		if m.Backend.Type != "subprocess" {
			r.AddFault(item, "backend %s runs no program, so it cannot have validators", m.Backend.Type)
			continue
		}
		r.checkValidator(item, &v, seen, m, s)
		m.Validators = append(m.Validators, v)
	}
}

// validatorKeys contains the keys of each type, except type itself. Required ones come before the bar.
var validatorKeys = map[string]string{requiredPath: "|input path", requiredInputKey: "key|input", denyArgs: "args|"}

func (r *reader) checkValidator(n ast.Node, v *validator, seen map[string]bool, m *manifest, s *schema) {
	needs, may, _ := strings.Cut(validatorKeys[v.Type], "|")
	r.requireKeys(n, v.Type, seen, strings.Fields(needs)...)
	for _, key := range sortedKeys(seen) {
		if key != "type" && key != needs && !strings.Contains(may, key) {
			r.AddFault(n, "%s has no key %s", v.Type, key)
		}
	}
	switch v.Type {
	case requiredPath:
		r.requiredPath(n, v, m, s)
	case requiredInputKey:
		r.requiredKey(n, v, s)
	case denyArgs:
		if len(v.Args) == 0 {
			r.AddFault(n, "DenyArgs needs at least one argument")
		}
		for _, a := range v.Args {
			if strings.Trim(a, "-") == "" || strings.ContainsAny(a, "= ") || describeHiddenChar(a, false) != "" {
				r.AddFault(n, "DenyArgs needs words such as --force or -f, not %q", strictyaml.Clip(a))
			}
		}
	}
}

func (r *reader) requiredPath(n ast.Node, v *validator, m *manifest, s *schema) {
	if v.Input == "" {
		v.Input = m.Backend.CwdFromInput
	}
	in := s.props[v.Input]
	switch {
	case v.Input == "" && (r.builtin && m.Backend.Cwd != "workspace" || m.Backend.Cwd == "none" || m.Backend.Cwd == "" && s.hasPaths()):
		r.AddFault(n, "RequiredPath needs an input, as the tool runs in no directory of its caller")
	case v.Input == "" && v.Path == "":
		r.AddFault(n, "RequiredPath needs an input, or a path below the working directory")
	case v.Input != "" && (in == nil || v.Input != m.Backend.CwdFromInput && in.Format != "path"):
		r.AddFault(n, "RequiredPath needs a path input, but %q is not%s", strictyaml.Clip(v.Input),
			strictyaml.DidYouMean(v.Input, s.names))
	case v.Path != "" && (!isSubpath(v.Path) || path.Clean(v.Path) != v.Path || v.Path == "." || describeHiddenChar(v.Path, false) != ""):
		r.AddFault(n, "RequiredPath needs a relative path without .., not %q", strictyaml.Clip(v.Path))
	}
}

func (r *reader) requiredKey(n ast.Node, v *validator, s *schema) {
	in := s.props[v.Input]
	switch {
	case v.Input == "" && s.props[v.Key] == nil:
		r.AddFault(n, "RequiredInputKey: %q is not an input%s", strictyaml.Clip(v.Key), strictyaml.DidYouMean(v.Key, s.names))
	case v.Input != "" && (in == nil || !in.hasOnlyTypes("object")):
		r.AddFault(n, "RequiredInputKey needs an input that is an object, but %q is not%s", strictyaml.Clip(v.Input),
			strictyaml.DidYouMean(v.Input, s.names))
	case v.Input != "" && (v.Key == "" || in.Properties[v.Key] == nil && in.Closed != nil && in.Closed.never):
		r.AddFault(n, "RequiredInputKey: input %s can have no key %q", v.Input, strictyaml.Clip(v.Key))
	case describeHiddenChar(v.Key, false) != "" || len(v.Key) > 128:
		r.AddFault(n, "RequiredInputKey needs a word as its key, not %q", strictyaml.Clip(v.Key))
	}
}

// hasPaths reports whether an input has format path.
func (s *schema) hasPaths() bool {
	for _, p := range s.props {
		if p.Format == "path" {
			return true
		}
	}
	return false
}
