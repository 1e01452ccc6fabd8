package policy

import (
	"iter"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"bailey"
)

func (w *world) opaque() bool {
	v, _ := w.context["input"].(cedar.Record).Get(opaqueName)
	s, ok := v.(cedar.Set)
	return ok && s.Len() > 0
}

// check applies the rules to each call that they were derived from, and records which rules must be narrower. It
// reports whether the rules must be written again.
func (d *drafts) check(e *Engine, past iter.Seq[Past]) (again bool) {
	for _, g := range d.order {
		g.blurred = 0
	}
	c := &recall{engine: e}
	for p := range past {
		g := d.groups[p.Request.Capability]
		if g == nil || g.gone || g.Allowed+g.Asked == 0 || c.undecidable(p) != "" {
			continue
		}
		if v := e.judge(p.Request); v.world != nil && v.Effect != p.Was && g.amend(p, v) {
			again = true
		}
	}
	return again
}

// amend adjusts a group to one call that the rules decide differently.
func (g *group) amend(p Past, v verdict) (again bool) {
	switch {
	case p.Was == bailey.Deny:
		return g.forbid(exactly(g.traits, facets(g.traits, p, v.world)))
	case v.Effect == bailey.Ask && !g.narrow && !g.asks.over && len(g.ask) > 0 && !builtinAsks(p, v.world):
		g.narrow = true
		return true
	case v.Effect == bailey.Deny && g.lift(v.Rules):
		return true
	}
	g.blurred++
	return false
}

// forbid keeps a call denied. If an allowed call has the same description, the call stays allowed and is counted.
func (g *group) forbid(conditions []string) (again bool) {
	if known, in := g.never.conditions[strings.Join(conditions, "\n")]; in && known == nil {
		g.blurred++
		return false
	}
	again = g.never.add(conditions)
	g.gone = g.gone || g.never.over
	return again
}

// lift removes forbids that deny more than they should: a receipt does not distinguish the two calls.
func (g *group) lift(rules []bailey.Rule) (lifted bool) {
	for i := range g.never.order {
		id := bailey.RuleID(g.rule("never", i+1))
		if slices.ContainsFunc(rules, func(r bailey.Rule) bool { return r.ID == id }) {
			g.never.drop(i)
			lifted = true
		}
	}
	return lifted
}
