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
	var r redactionReader
	err := readMapping(n, "part of redaction", keyReaders{
		"patterns": func(n ast.Node) error { return readList(n, "patterns wants a list of patterns", r.readPattern) },
		"allow":    func(n ast.Node) error { return readList(n, "allow wants a list of allowances", r.readAllowance) },
		"without":  func(n ast.Node) error { return readList(n, "without wants a list of categories", r.readWithout) },
	})
	if err != nil {
		return redact.Config{}, err
	}
	if err := r.compileRules(); err != nil {
		return redact.Config{}, err
	}
	if kept, err := json.Marshal(Expressions(r.Config)); err != nil || len(kept) > maxRedaction {
		return redact.Config{}, nodeError(n, "the ledger would keep %d bytes of these rules, %d are allowed", len(kept),
			maxRedaction)
	}
	return r.Config, nil
}

// redactionReader is a configuration during parsing, with the positions of its rules.
type redactionReader struct {
	redact.Config
	patterns, allow []*token.Token
	leaves          [][]*token.Token // per pattern
}

func (r *redactionReader) readPattern(n ast.Node) error {
	var p redact.Pattern
	var leaves []*token.Token
	err := readMapping(n, "part of a pattern", keyReaders{
		"category": readText(&p.Category), "regexp": readText(&p.Regexp), "hides": readTexts(&p.Hides, nil),
		"leaves": readTexts(&p.Leaves, &leaves),
	})
	switch {
	case err != nil:
		return err
	case p.Category == "" || p.Regexp == "":
		return faultAt(firstToken(n), "a pattern wants a category and a regexp")
	case len(p.Hides) == 0:
		return faultAt(firstToken(n), "the pattern of %s wants an example in hides that shows what it finds",
			p.Category)
	}
	r.Patterns, r.patterns, r.leaves = append(r.Patterns, p), append(r.patterns, firstToken(n)), append(r.leaves,
		leaves)
	return nil
}

func (r *redactionReader) readAllowance(n ast.Node) error {
	var a redact.Allow
	err := readMapping(n, "part of an allowance",
		keyReaders{"category": readText(&a.Category), "regexp": readText(&a.Regexp),
			"passes": readTexts(&a.Passes, nil)})
	switch {
	case err != nil:
		return err
	case a.Regexp == "":
		return faultAt(firstToken(n), "an allowance wants a regexp")
	case len(a.Passes) == 0:
		return faultAt(firstToken(n), "the allowance %q wants an example in passes: a whole find that it lets pass",
			a.Regexp)
	}
	r.Allow, r.allow = append(r.Allow, a), append(r.allow, firstToken(n))
	return nil
}

func (r *redactionReader) readWithout(n ast.Node) error {
	var c redact.Category
	if err := readText(&c)(n); err != nil {
		return err
	}
	switch {
	case !slices.Contains(redact.Categories(), c):
		return nodeError(n, "the category %q is not built in; there is %s", c, strings.Join(redact.Categories(), ", "))
	case slices.Contains(r.Without, c):
		return nodeError(n, "the category %q is named twice", c)
	}
	r.Without = append(r.Without, c)
	return nil
}

// compileRules compiles the rules, which tests their examples. The error has the position of the first bad rule.
func (r *redactionReader) compileRules() error {
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
	return &parseError{why: positionText(cmp.Or(r.failingExample(bad), places[bad])) + ": " + why.Error(),
		cure: bailey.HintOf(why)}
}

// failingExample returns the position of the first example in leaves in which the bad rule finds something, or nil if the rule
// fails for another reason.
func (r *redactionReader) failingExample(bad int) *token.Token {
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

// firstToken returns the first token of a mapping, its first key. The parser itself returns the colon after that key.
func firstToken(n ast.Node) *token.Token {
	if pairs, _ := pairsOf(n); len(pairs) > 0 {
		return pairs[0].Key.GetToken()
	}
	return n.GetToken()
}

// readText reads one string.
func readText(into *string) func(ast.Node) error {
	return func(n ast.Node) error {
		s, ok := n.(*ast.StringNode)
		if !ok || s.Value == "" {
			return nodeError(n, "wants a text; single quotes make one of anything")
		}
		*into = s.Value
		return nil
	}
}

// readTexts reads a list of strings. If at is not nil, it also returns their positions.
func readTexts(into *[]string, at *[]*token.Token) func(ast.Node) error {
	return func(n ast.Node) error {
		return readList(n, "wants a list of texts", func(n ast.Node) error {
			var s string
			err := readText(&s)(n)
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
