package policy

import (
	"iter"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"bailey"
)

func (w *cedarRequest) hasOpaqueInput() bool {
	v, _ := w.context["input"].(cedar.Record).Get(opaqueName)
	s, ok := v.(cedar.Set)
	return ok && s.Len() > 0
}

// checkAgainstPast applies the rules to each call that they were derived from, and records which rules must be narrower. It
// reports whether the rules must be written again.
func (d *draftPolicy) checkAgainstPast(e *Engine, past iter.Seq[Past]) (again bool) {
	for _, g := range d.order {
		g.blurred = 0
	}
	c := &pastChecker{engine: e}
	for p := range past {
		g := d.groups[p.Request.Capability]
		if g == nil || g.gone || g.Allowed+g.Asked == 0 || c.whyUndecidable(p) != "" {
			continue
		}
		if v := e.decideFullContext(p.Request); v.world != nil && v.Effect != p.Was && g.adjustToCall(p, v) {
			again = true
		}
	}
	return again
}

// adjustToCall adjusts a group to one call that the rules decide differently.
func (g *callGroup) adjustToCall(p Past, v verdict) (again bool) {
	switch {
	case p.Was == bailey.Deny:
		return g.keepDenied(exactConditions(g.traits, facetsOf(g.traits, p, v.world)))
	case v.Effect == bailey.Ask && !g.narrow && !g.asks.over && len(g.ask) > 0 && !builtinAsks(p, v.world):
		g.narrow = true
		return true
	case v.Effect == bailey.Deny && g.liftForbids(v.Rules):
		return true
	}
	g.blurred++
	return false
}

// keepDenied keeps a call denied. If an allowed call has the same description, the call stays allowed and is counted.
func (g *callGroup) keepDenied(conditions []string) (again bool) {
	if known, in := g.never.conditions[strings.Join(conditions, "\n")]; in && known == nil {
		g.blurred++
		return false
	}
	again = g.never.addCall(conditions)
	g.gone = g.gone || g.never.over
	return again
}

// liftForbids removes forbids that deny more than they should: a receipt does not distinguish the two calls.
func (g *callGroup) liftForbids(rules []bailey.Rule) (lifted bool) {
	for i := range g.never.order {
		id := bailey.RuleID(g.suggestedID("never", i+1))
		if slices.ContainsFunc(rules, func(r bailey.Rule) bool { return r.ID == id }) {
			g.never.dropCall(i)
			lifted = true
		}
	}
	return lifted
}
