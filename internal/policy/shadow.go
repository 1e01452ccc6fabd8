package policy

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"bailey"
)

// reach is the set that a scope covers. The zero EntityUID means any; a rule cannot contain it, because it has no type.
type reach struct{ principal, action, resource cedar.EntityUID }

// blanket has the unconditional forbids of a policy by their reach, one for each. They deny every call in that reach,
// and no grant lifts them.
type blanket map[reach]*LoadedRule

func newBlanket(rules []*LoadedRule) blanket {
	b := blanket{}
	for _, r := range rules {
		if r.IsPermit() || r.Asks || !isUnconditional(r) {
			continue
		}
		for _, act := range reachedActions(r) {
			at := reach{scopeEntity(r.AST.Principal), act, scopeEntity(r.AST.Resource)}
			if b[at] == nil {
				b[at] = r
			}
		}
	}
	return b
}

// isUnconditional reports whether a rule holds wherever its scope matches.
func isUnconditional(r *LoadedRule) bool {
	return !slices.ContainsFunc(r.AST.Conditions, func(c ast.ConditionType) bool {
		v, ok := c.Body.(ast.NodeValue)
		return !ok || v.Value != cedar.Boolean(c.Condition == ast.ConditionWhen)
	})
}

// scopeEntity returns the only entity that a principal or resource scope covers, or zero for any. Agents and targets
// have no parents, and each type has one place in a scope, so `in` means `==` and `is` means any.
func scopeEntity(s ast.IsScopeNode) cedar.EntityUID {
	switch s := s.(type) {
	case ast.ScopeTypeEq:
		return s.Entity
	case ast.ScopeTypeIn:
		return s.Entity
	case ast.ScopeTypeIsIn:
		return s.Entity
	}
	return cedar.EntityUID{}
}

// reachedActions returns the actions and groups of a rule's scope. A rule without an action scope reaches any.
func reachedActions(r *LoadedRule) []cedar.EntityUID {
	if r.isUnscoped() {
		return []cedar.EntityUID{{}}
	}
	return scopeUIDs(r.AST.Action)
}

// forbidOver returns a forbid that covers at completely. acts are the actions and groups to which the action of at
// belongs.
func (b blanket) forbidOver(at reach, acts []cedar.EntityUID) *LoadedRule {
	for _, who := range [...]cedar.EntityUID{{}, at.principal} {
		for _, what := range [...]cedar.EntityUID{{}, at.resource} {
			if r := b[reach{who, cedar.EntityUID{}, what}]; r != nil {
				return r
			}
			for _, act := range acts {
				if r := b[reach{who, act, what}]; r != nil {
					return r
				}
			}
		}
	}
	return nil
}

// forbidsOverRule returns the forbids that together cover a rule's scope completely, or nil if they do not.
func (b blanket) forbidsOverRule(m *model, r *LoadedRule) (over []*LoadedRule) {
	for _, act := range reachedActions(r) {
		forbids := b.forbidsOverAction(m, reach{scopeEntity(r.AST.Principal), act, scopeEntity(r.AST.Resource)})
		if forbids == nil {
			return nil
		}
		for _, f := range forbids {
			if !slices.Contains(over, f) {
				over = append(over, f)
			}
		}
	}
	return over
}

// forbidsOverAction does the same for one action or group. A pack group is also covered if all actions of the pack are.
// A class group is covered only by itself, because a rule about it may be meant for actions that do not exist yet.
func (b blanket) forbidsOverAction(m *model, at reach) (over []*LoadedRule) {
	if a := m.byUID[at.action]; a != nil {
		if f := b.forbidOver(at, a.wider); f != nil {
			over = append(over, f)
		}
		return over
	}
	if f := b.forbidOver(at, []cedar.EntityUID{at.action}); f != nil {
		return []*LoadedRule{f}
	}
	if !strings.HasPrefix(string(at.action.ID), packGroup) {
		return nil
	}
	for _, a := range m.members[at.action] {
		f := b.forbidOver(at, a.wider)
		if f == nil {
			return nil
		}
		over = append(over, f)
	}
	return over
}

// checkShadowed reports the rules that have no effect because of unconditional forbids: a permit that allows no call,
// and an asking rule that no grant can lift. A forbid under another forbid is not reported, because its reason still
// counts.
func (f *findings) checkShadowed(m *model, rules []*LoadedRule, b blanket) {
	if len(b) == 0 {
		return
	}
	for _, r := range rules {
		if r.BuiltIn || !r.IsPermit() && !r.Asks {
			continue
		}
		over := b.forbidsOverRule(m, r)
		if len(over) == 0 {
			continue
		}
		what := "allows nothing"
		if r.Asks {
			what = "asks for nothing"
		}
		f.addForRule(r, what+": every call that it covers is denied by "+describeForbids(over)+"; narrow that rule, or remove one of the two")
	}
}

// describeForbids names the first few rules of a list, with their positions.
func describeForbids(list []*LoadedRule) string {
	const most = 3
	var words []string
	for i, r := range list {
		if i == most {
			words = append(words, "and others")
			break
		}
		words = append(words, "the forbid "+string(r.ID)+" at "+r.Source)
	}
	return strings.Join(words, ", ")
}

// Never reports whether the scopes of the rules alone deny an action for every call: no permit covers it, or
// unconditional forbids cover all that permits could allow. If agent is not "", only scopes that include that agent
// count. An unknown action is never allowed. If the result is false, the action may still be denied.
func (e *Engine) Never(id bailey.CapabilityID, agent string) bool {
	s := e.slices[id]
	if s == nil {
		return true
	}
	for _, list := range [...][]*LoadedRule{s.own, e.common} {
		if slices.ContainsFunc(list, func(r *LoadedRule) bool { return e.couldAllow(r, s.act, agent) }) {
			return false
		}
	}
	return true
}

// couldAllow reports whether a permit could allow an action.
func (e *Engine) couldAllow(r *LoadedRule, a *action, agent string) bool {
	if !r.IsPermit() || a.isIrreversible() && !r.namesAction(a.uid) || len(a.Waivers) > 0 && !r.looksAt("waivers") {
		return false
	}
	at := reach{scopeEntity(r.AST.Principal), a.uid, scopeEntity(r.AST.Resource)}
	if agent != "" {
		me := cedar.NewEntityUID("Agent", cedar.String(agent))
		if at.principal.Type != "" && at.principal != me {
			return false
		}
		at.principal = me
	}
	return e.blanket.forbidOver(at, a.wider) == nil
}
