package pack

import (
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
)

// checkout names the inputs that the gate takes from the git checkout of the caller's directory if a call omits them.
type checkout struct {
	Repository string   `json:"repository,omitempty"` // OWNER/NAME of the repository at GitHub
	Branch     string   `json:"branch,omitempty"`     // the current branch, BRANCH or OWNER:BRANCH
	Unless     string   `json:"unless,omitempty"`     // if this input is given, the branch is not filled in
	Without    []string `json:"without,omitempty"`    // if one of these inputs is given, nothing is filled in
	Within     []string `json:"within,omitempty"`     // inputs in which {owner}, {repo} and {branch} are replaced
}

// Checkout is the git checkout of a directory, as its files describe it. They may be hostile, so every result is
// checked like an input of the caller.
type Checkout interface {
	// Repository returns the repository at GitHub. If chosen is not set, it ignores that gh repo set-default chose one,
	// as gh api does.
	Repository(chosen bool) (owner, name string, err error)
	// Branch returns the current branch, and PullRequest the words with which gh finds its pull request.
	Branch() (string, error)
	PullRequest() (string, error)
}

// FillCheckout returns the input with the values from the checkout. It calls find only if the input needs one. The
// result is not checked.
func (m *Capability) FillCheckout(input map[string]any, find func() (Checkout, error)) (map[string]any, error) {
	spec := m.spec.Checkout
	missing := func(name string) bool { return name != "" && input[name] == nil }
	if spec == nil || slices.ContainsFunc(spec.Without, func(name string) bool { return !missing(name) }) {
		return input, nil
	}
	needsName := missing(spec.Repository)
	// With a repository of its own, a call has to name the branch too: gh then uses no directory.
	needsBranch := missing(spec.Branch) && needsName && (spec.Unless == "" || missing(spec.Unless))
	within := slices.ContainsFunc(spec.Within, func(name string) bool { return holdsPlaceholder(input[name]) })
	if !needsName && !needsBranch && !within {
		return input, nil
	}
	from, err := find()
	if err != nil {
		return nil, m.checkoutError(spec, err)
	}
	if input = maps.Clone(input); input == nil {
		input = map[string]any{}
	}
	if needsName {
		owner, name, err := from.Repository(true)
		if err != nil {
			return nil, m.checkoutError(spec, err)
		}
		input[spec.Repository] = owner + "/" + name
	}
	if needsBranch {
		if input[spec.Branch], err = from.PullRequest(); err != nil {
			return nil, bailey.Invalid.Wrap(err, "the branch of the working directory is not known",
				"pass the input "+spec.Branch)
		}
	}
	for _, name := range spec.Within {
		if input[name], err = fillPlaceholders(input[name], from); err != nil {
			return nil, bailey.Invalid.Wrap(err, "input /"+name+" has a placeholder whose value is not known",
				"write the value instead of the placeholder")
		}
		if input[name] == nil {
			delete(input, name)
		}
	}
	return input, nil
}

func (m *Capability) checkoutError(spec *checkout, err error) error {
	name := spec.Repository
	if name == "" {
		name = strings.Join(spec.Within, ", ")
	}
	return bailey.Invalid.Wrap(err, "the repository of the working directory is not known", "pass the input "+name)
}

var placeholderNames = []string{"{owner}", "{repo}", "{branch}"}

func holdsPlaceholder(v any) bool {
	switch v := v.(type) {
	case string:
		return slices.ContainsFunc(placeholderNames, func(p string) bool { return strings.Contains(v, p) })
	case []any:
		return slices.ContainsFunc(v, func(item any) bool {
			text, ok := item.(string)
			return ok && isTypedField(text) && holdsPlaceholder(text)
		})
	}
	return false
}

// isTypedField reports whether gh replaces placeholders in an option of gh api.
func isTypedField(item string) bool {
	return strings.HasPrefix(item, "-F") || strings.HasPrefix(item, "--field=")
}

// fillPlaceholders replaces the placeholders in a text, or in the fields of a list.
func fillPlaceholders(v any, from Checkout) (any, error) {
	switch v := v.(type) {
	case string:
		return replacePlaceholders(v, from)
	case []any:
		list := slices.Clone(v)
		for i, item := range list {
			if text, ok := item.(string); ok && isTypedField(text) {
				filled, err := replacePlaceholders(text, from)
				if err != nil {
					return nil, err
				}
				list[i] = filled
			}
		}
		return list, nil
	}
	return v, nil
}

func replacePlaceholders(text string, from Checkout) (string, error) {
	if !holdsPlaceholder(text) {
		return text, nil
	}
	var branch string
	owner, name, err := from.Repository(false)
	if err == nil && strings.Contains(text, "{branch}") {
		branch, err = from.Branch()
	}
	if err != nil {
		return "", err
	}
	return strings.NewReplacer("{owner}", owner, "{repo}", name, "{branch}", branch).Replace(text), nil
}

// readCheckout reads the key of that name. It runs after the schema, because the key refers to inputs.
func (r *reader) readCheckout(n ast.Node, m *manifest, s *schema) {
	if n == nil {
		return
	}
	c := &checkout{}
	r.Fields(n, "checkout", strictyaml.Fields{
		"repository": r.wordField("repository", inputName(), &c.Repository),
		"branch":     r.wordField("branch", inputName(), &c.Branch),
		"unless":     r.wordField("unless", inputName(), &c.Unless),
		"without":    r.wordsField("without", inputName(), &c.Without),
		"within":     r.wordsField("within", inputName(), &c.Within),
	})
	for _, name := range slices.Concat([]string{c.Repository, c.Branch, c.Unless}, c.Without, c.Within) {
		if name != "" && s.props[name] == nil {
			r.AddFault(n, "checkout names the input %q, which is not in the inputSchema%s", strictyaml.Clip(name),
				strictyaml.DidYouMean(name, s.names))
		}
	}
	for _, name := range []string{c.Repository, c.Branch} {
		if in := s.props[name]; in != nil && (!in.hasOnlyTypes("string") || in.Pattern == "" || in.Format != "") {
			r.AddFault(n, "checkout needs input.%s to be a string with a pattern and without a format",
				strictyaml.Clip(name))
		}
	}
	if c.Branch != "" && c.Repository == "" {
		r.AddFault(n, "checkout has a branch and no repository")
	}
	m.Checkout = c
}
