package policy

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"bailey"
)

// Past is a call that was decided, reconstructed from its receipt.
type Past struct {
	Request bailey.Request // without grants, as before any approval
	Receipt bailey.ReceiptID
	Was     bailey.Effect
	Asks    []bailey.Rule // rules that asked, if the receipt names them
	DryRun  bool
	Unknown string   // why the call cannot be decided again, or ""
	Hidden  []string // parts of the request that the receipt shows as tokens: "input", "input.NAME", "paths", "dir"
	Marks   []string // why the answer is less certain
}

// hides is the reason if a rule reads a part of the call that the receipt hides.
const hides = "a rule looks at what the receipt hides"

// Undecidable returns why the decision of these rules on p cannot be determined, or "".
func (e *Engine) Undecidable(p Past) string { return (&pastChecker{engine: e}).whyUndecidable(p) }

// pastChecker decides past calls. It caches the parts of a request that each rule reads.
type pastChecker struct {
	engine *Engine
	seen   map[*rule][]string
}

func (c *pastChecker) whyUndecidable(p Past) string {
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
			if slices.ContainsFunc(c.partsRead(r), func(at string) bool { return overlapsHidden(at, p.Hidden) }) {
				return hides
			}
		}
	}
	return ""
}

// partsRead returns the parts of a request that a rule reads, named as in [Past.Hidden].
func (c *pastChecker) partsRead(r *rule) []string {
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

// overlapsHidden reports whether a part, or a part that contains it or lies in it, is hidden.
func overlapsHidden(at string, hidden []string) bool {
	return slices.ContainsFunc(hidden, func(h string) bool {
		return at == h || strings.HasPrefix(at, h+".") || strings.HasPrefix(h, at+".")
	})
}

// looksAt searches a rule for context.X and context.input.X. A `has` test of an input and the names in
// context.input._opaque do not count, because receipts never hide them.
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
