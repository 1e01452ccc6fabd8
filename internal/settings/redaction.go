package settings

import (
	"cmp"
	"encoding/json"
	"slices"
	"sort"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/redact"
	"bailey/internal/strictyaml"
)

// readRedaction reads the setting redaction and tests its examples. A rule without an example is refused, because it is
// untested.
func (r reader) readRedaction(n ast.Node) redact.Config {
	rules := redactionReader{reader: r}
	r.readKeys(n, "part of redaction", strictyaml.Fields{
		"patterns": rules.eachItem("patterns must be a list of patterns", rules.readPattern),
		"allow":    rules.eachItem("allow must be a list of regexps", rules.readAllowance),
		"without":  rules.eachItem("without must list categories", rules.readWithout),
	})
	if len(r.Faults) == 0 {
		rules.compileRules()
	}
	if kept, err := json.Marshal(Expressions(rules.Config)); err != nil || len(kept) > maxRedaction {
		r.AddFault(n, "these rules need %d bytes of the ledger, but %d are allowed", len(kept), maxRedaction)
	}
	return rules.Config
}

// redactionReader is a configuration during parsing, with the nodes of its rules.
type redactionReader struct {
	reader
	redact.Config
	patterns, allow []ast.Node
	leaves          [][]ast.Node // per pattern
}

func (r *redactionReader) eachItem(wants string, read func(ast.Node)) func(ast.Node) {
	return func(n ast.Node) {
		for _, item := range r.readItems(n, wants) {
			read(item)
		}
	}
}

func (r *redactionReader) readPattern(n ast.Node) {
	var p redact.Pattern
	var leaves []ast.Node
	at := strictyaml.FirstKey(n)
	r.readKeys(n, "part of a pattern", strictyaml.Fields{
		"category": r.textField(&p.Category), "regexp": r.textField(&p.Regexp), "hides": r.textsField(&p.Hides, nil),
		"leaves": r.textsField(&p.Leaves, &leaves),
	})
	switch {
	case p.Category == "" || p.Regexp == "":
		r.AddFault(at, "a pattern needs a category and a regexp")
	case len(p.Hides) == 0:
		r.AddFault(at, "the pattern of %s needs an example in hides that it matches", p.Category)
	}
	r.Patterns, r.patterns, r.leaves = append(r.Patterns, p), append(r.patterns, at), append(r.leaves, leaves)
}

func (r *redactionReader) readAllowance(n ast.Node) {
	var a redact.Allow
	at := strictyaml.FirstKey(n)
	r.readKeys(n, "part of an allowance", strictyaml.Fields{
		"category": r.textField(&a.Category), "regexp": r.textField(&a.Regexp), "passes": r.textsField(&a.Passes, nil),
	})
	switch {
	case a.Regexp == "":
		r.AddFault(at, "an allowance needs a regexp")
	case len(a.Passes) == 0:
		r.AddFault(at, "the allowance %q needs an example in passes that it matches as a whole", a.Regexp)
	}
	r.Allow, r.allow = append(r.Allow, a), append(r.allow, at)
}

func (r *redactionReader) readWithout(n ast.Node) {
	var c redact.Category
	r.textField(&c)(n)
	switch {
	case !slices.Contains(redact.Categories(), c):
		r.AddFault(n, "the category %q is not built in; use %s", c, strings.Join(redact.Categories(), ", "))
	case slices.Contains(r.Without, c):
		r.AddFault(n, "the category %q is named twice", c)
	}
	r.Without = append(r.Without, c)
}

// compileRules compiles the rules, which tests their examples. The fault has the position of the first bad rule.
func (r *redactionReader) compileRules() {
	upTo := func(n int) error {
		p := min(n, len(r.patterns))
		_, err := redact.Compile(redact.Config{Patterns: r.Patterns[:p], Allow: r.Allow[:n-p]})
		return err
	}
	places := slices.Concat(r.patterns, r.allow)
	if upTo(len(places)) == nil {
		return
	}
	bad := sort.Search(len(places), func(i int) bool { return upTo(i+1) != nil })
	why := upTo(bad + 1)
	r.AddFault(cmp.Or(r.failingExample(bad), places[bad]), "%s", why)
	r.Hint = strings.Replace(r.Hint, "correct it", cmp.Or(bailey.HintOf(why), "correct it"), 1)
}

// failingExample returns the first example in leaves in which the bad rule finds something, or nil if the rule fails for
// another reason.
func (r *redactionReader) failingExample(bad int) ast.Node {
	if bad >= len(r.patterns) {
		return nil
	}
	p := r.Patterns[bad]
	all := p.Leaves
	for n := range len(all) + 1 {
		p.Leaves = all[:n]
		if _, err := redact.Compile(redact.Config{Patterns: []redact.Pattern{p}}); err != nil {
			if n == 0 {
				return nil
			}
			return r.leaves[bad][n-1]
		}
	}
	return nil
}

// textField reads one string.
func (r *redactionReader) textField(into *string) func(ast.Node) {
	return func(n ast.Node) {
		s, ok := n.(*ast.StringNode)
		if !ok || s.Value == "" {
			r.AddFault(n, "must be text; put it in single quotes")
			return
		}
		*into = s.Value
	}
}

// textsField reads a list of strings. If at is not nil, it also returns their nodes.
func (r *redactionReader) textsField(into *[]string, at *[]ast.Node) func(ast.Node) {
	return r.eachItem("must be a list of texts", func(n ast.Node) {
		var s string
		r.textField(&s)(n)
		if *into = append(*into, s); at != nil {
			*at = append(*at, n)
		}
	})
}

// Expressions returns a configuration without its examples, as the ledger stores it. The examples are tested already,
// and they look like secrets.
func Expressions(c redact.Config) redact.Config {
	c.Patterns, c.Allow = slices.Clone(c.Patterns), slices.Clone(c.Allow)
	for i := range c.Patterns {
		c.Patterns[i].Hides, c.Patterns[i].Leaves = nil, nil
	}
	for i := range c.Allow {
		c.Allow[i].Passes = nil
	}
	return c
}
