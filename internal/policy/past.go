package policy

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"bailey"
)

// Past is a call that was decided, as its receipt tells it.
type Past struct {
	Request bailey.Request // without grants: as it was before anybody was asked
	Receipt bailey.ReceiptID
	Was     bailey.Effect
	Asks    []bailey.Rule // that asked, where the receipt names them
	DryRun  bool
	Unknown string   // why nobody can decide it again; "" is nothing
	Hidden  []string // what of the request the receipt shows as tokens: "input", "input.NAME", "paths", "dir"
	Marks   []string // what makes the answer less sure, in words
}

// hides is why a call whose receipt hides something cannot be decided by a rule that looks at it.
const hides = "a rule looks at what the receipt hides"

// Undecidable says why nobody can tell what these rules would have decided, or "".
func (e *Engine) Undecidable(p Past) string { return (&recall{engine: e}).undecidable(p) }

// recall decides calls of the past. It remembers what each rule looks at.
type recall struct {
	engine *Engine
	seen   map[*rule][]string
}

func (c *recall) undecidable(p Past) string {
	if p.Unknown != "" {
		return p.Unknown
	}
	s := c.engine.slices[p.Request.Capability]
	if s == nil {
		return "the capability is not there today"
	}
	if len(p.Hidden) == 0 {
		return ""
	}
	for _, list := range [...][]*rule{s.own, c.engine.common} {
		for _, r := range list {
			if slices.ContainsFunc(c.looks(r), func(at string) bool { return touches(at, p.Hidden) }) {
				return hides
			}
		}
	}
	return ""
}

// looks returns the parts of a request that a rule looks at, named as in [Past.Hidden].
func (c *recall) looks(r *rule) []string {
	at, ok := c.seen[r]
	if !ok {
		if c.seen == nil {
			c.seen = map[*rule][]string{}
		}
		at = looksAt(r.ast)
		c.seen[r] = at
	}
	return at
}

// touches tells whether a part, or something around or in it, is hidden.
func touches(at string, hidden []string) bool {
	return slices.ContainsFunc(hidden, func(h string) bool {
		return at == h || strings.HasPrefix(at, h+".") || strings.HasPrefix(h, at+".")
	})
}

// looksAt walks a rule for context.X and context.input.X. That an input is there is never hidden, nor are the names
// in context.input._opaque.
func looksAt(p *ast.Policy) (at []string) {
	for _, c := range p.Conditions {
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool {
			switch n := n.(type) {
			case ast.NodeTypeHas:
				return !isInput(n.Arg)
			case ast.NodeTypeAccess:
				switch {
				case isInput(n.Arg) && n.Value == opaqueName:
				case isInput(n.Arg):
					at = append(at, "input."+string(n.Value))
				case isContext(n.Arg):
					at = append(at, string(n.Value))
				default:
					return true
				}
				return false
			}
			return true
		})
	}
	return at
}

func isInput(n ast.IsNode) bool {
	a, ok := n.(ast.NodeTypeAccess)
	return ok && a.Value == "input" && isContext(a.Arg)
}
