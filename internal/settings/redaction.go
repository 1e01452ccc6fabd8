package settings

import (
	"cmp"
	"encoding/json"
	"slices"
	"sort"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"bailey"
	"bailey/internal/redact"
)

// rulesOf reads the setting redaction and tests its examples. A rule without an example is refused, because it is
// untested.
func rulesOf(n ast.Node) (redact.Config, error) {
	var r ruling
	err := each(n, "part of redaction", keys{
		"patterns": func(n ast.Node) error { return items(n, "patterns wants a list of patterns", r.pattern) },
		"allow":    func(n ast.Node) error { return items(n, "allow wants a list of allowances", r.allowance) },
		"without":  func(n ast.Node) error { return items(n, "without wants a list of categories", r.leave) },
	})
	if err != nil {
		return redact.Config{}, err
	}
	if err := r.tried(); err != nil {
		return redact.Config{}, err
	}
	if kept, err := json.Marshal(Expressions(r.Config)); err != nil || len(kept) > maxRedaction {
		return redact.Config{}, fault(n, "the ledger would keep %d bytes of these rules, %d are allowed", len(kept), maxRedaction)
	}
	return r.Config, nil
}

// ruling is a configuration during parsing, with the positions of its rules.
type ruling struct {
	redact.Config
	patterns, allow []*token.Token
	leaves          [][]*token.Token // per pattern
}

func (r *ruling) pattern(n ast.Node) error {
	var p redact.Pattern
	var leaves []*token.Token
	err := each(n, "part of a pattern", keys{
		"category": text(&p.Category), "regexp": text(&p.Regexp), "hides": texts(&p.Hides, nil), "leaves": texts(&p.Leaves, &leaves),
	})
	switch {
	case err != nil:
		return err
	case p.Category == "" || p.Regexp == "":
		return faultAt(begin(n), "a pattern wants a category and a regexp")
	case len(p.Hides) == 0:
		return faultAt(begin(n), "the pattern of %s wants an example in hides that shows what it finds", p.Category)
	}
	r.Patterns, r.patterns, r.leaves = append(r.Patterns, p), append(r.patterns, begin(n)), append(r.leaves, leaves)
	return nil
}

func (r *ruling) allowance(n ast.Node) error {
	var a redact.Allow
	err := each(n, "part of an allowance", keys{"category": text(&a.Category), "regexp": text(&a.Regexp), "passes": texts(&a.Passes, nil)})
	switch {
	case err != nil:
		return err
	case a.Regexp == "":
		return faultAt(begin(n), "an allowance wants a regexp")
	case len(a.Passes) == 0:
		return faultAt(begin(n), "the allowance %q wants an example in passes: a whole find that it lets pass", a.Regexp)
	}
	r.Allow, r.allow = append(r.Allow, a), append(r.allow, begin(n))
	return nil
}

func (r *ruling) leave(n ast.Node) error {
	var c redact.Category
	if err := text(&c)(n); err != nil {
		return err
	}
	switch {
	case !slices.Contains(redact.Categories(), c):
		return fault(n, "the category %q is not built in; there is %s", c, strings.Join(redact.Categories(), ", "))
	case slices.Contains(r.Without, c):
		return fault(n, "the category %q is named twice", c)
	}
	r.Without = append(r.Without, c)
	return nil
}

// tried compiles the rules, which tests their examples. The error has the position of the first bad rule.
func (r *ruling) tried() error {
	upTo := func(n int) error {
		p := min(n, len(r.patterns))
		_, err := redact.Compile(redact.Config{Patterns: r.Patterns[:p], Allow: r.Allow[:n-p]})
		return err
	}
	places := slices.Concat(r.patterns, r.allow)
	if upTo(len(places)) == nil {
		return nil
	}
	bad := sort.Search(len(places), func(i int) bool { return upTo(i+1) != nil })
	why := upTo(bad + 1)
	return &misread{why: place(cmp.Or(r.untrue(bad), places[bad])) + ": " + why.Error(), cure: bailey.HintOf(why)}
}

// untrue returns the position of the first example in leaves in which the bad rule finds something, or nil if the rule
// fails for another reason.
func (r *ruling) untrue(bad int) *token.Token {
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

// begin returns the first token of a mapping, its first key. The parser itself returns the colon after that key.
func begin(n ast.Node) *token.Token {
	if pairs, _ := pairsOf(n); len(pairs) > 0 {
		return pairs[0].Key.GetToken()
	}
	return n.GetToken()
}

// text reads one string.
func text(into *string) func(ast.Node) error {
	return func(n ast.Node) error {
		s, ok := n.(*ast.StringNode)
		if !ok || s.Value == "" {
			return fault(n, "wants a text; single quotes make one of anything")
		}
		*into = s.Value
		return nil
	}
}

// texts reads a list of strings. If at is not nil, it also returns their positions.
func texts(into *[]string, at *[]*token.Token) func(ast.Node) error {
	return func(n ast.Node) error {
		return items(n, "wants a list of texts", func(n ast.Node) error {
			var s string
			err := text(&s)(n)
			if *into = append(*into, s); at != nil {
				*at = append(*at, n.GetToken())
			}
			return err
		})
	}
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
