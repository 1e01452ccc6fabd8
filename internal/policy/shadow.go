package policy

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"bailey"
)

// reach is what a scope takes in. The zero EntityUID stands for any: no rule can write it, for it has no type.
type reach struct{ principal, action, resource cedar.EntityUID }

// blanket holds the unconditional forbids of a policy by their reach, one for each: whatever lies in it is denied
// for good, and no grant lifts it.
type blanket map[reach]*rule

func newBlanket(rules []*rule) blanket {
	b := blanket{}
	for _, r := range rules {
		if r.permits() || r.asks || !unconditional(r) {
			continue
		}
		for _, act := range reached(r) {
			at := reach{one(r.ast.Principal), act, one(r.ast.Resource)}
			if b[at] == nil {
				b[at] = r
			}
		}
	}
	return b
}

// unconditional says whether a rule holds wherever its scope does.
func unconditional(r *rule) bool {
	return !slices.ContainsFunc(r.ast.Conditions, func(c ast.ConditionType) bool {
		v, ok := c.Body.(ast.NodeValue)
		return !ok || v.Value != cedar.Boolean(c.Condition == ast.ConditionWhen)
	})
}

// one returns the only entity that a principal or resource scope takes in. Agents and targets have no parents, and
// each stands in the one place, so `in` is `==` and `is` is any.
func one(s ast.IsScopeNode) cedar.EntityUID {
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

// reached returns the actions and groups of a rule's scope; a rule without one reaches any.
func reached(r *rule) []cedar.EntityUID {
	if r.unscoped() {
		return []cedar.EntityUID{{}}
	}
	return scoped(r.ast.Action)
}

// over returns a forbid that takes in all that at does; acts are the actions and groups at's action belongs to.
func (b blanket) over(at reach, acts []cedar.EntityUID) *rule {
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

// all returns the forbids that together take in all of a rule's scope, nil where they do not.
func (b blanket) all(m *model, r *rule) (over []*rule) {
	for _, act := range reached(r) {
		forbids := b.each(m, reach{one(r.ast.Principal), act, one(r.ast.Resource)})
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

// each does the same for one action or group. A pack's group is taken in when all actions of the pack are. A group
// of a class is so only by itself: a rule about it waits for actions that are not there yet.
func (b blanket) each(m *model, at reach) (over []*rule) {
	if a := m.byUID[at.action]; a != nil {
		if f := b.over(at, a.wider); f != nil {
			over = append(over, f)
		}
		return over
	}
	if f := b.over(at, []cedar.EntityUID{at.action}); f != nil {
		return []*rule{f}
	}
	if !strings.HasPrefix(string(at.action.ID), packGroup) {
		return nil
	}
	for _, a := range m.members[at.action] {
		f := b.over(at, a.wider)
		if f == nil {
			return nil
		}
		over = append(over, f)
	}
	return over
}

// shadowed reports the rules that unconditional forbids leave nothing to do: a permit that allows no call, an asking
// rule that no grant lifts. A forbid beneath another one is none of them: it still says why.
func (f *findings) shadowed(m *model, rules []*rule, b blanket) {
	if len(b) == 0 {
		return
	}
	for _, r := range rules {
		if r.builtin || !r.permits() && !r.asks {
			continue
		}
		over := b.all(m, r)
		if len(over) == 0 {
			continue
		}
		what := "allows nothing"
		if r.asks {
			what = "asks for nothing"
		}
		f.rule(r, what+": every call it covers is denied by "+forbids(over)+"; narrow that, or take one of the two out")
	}
}

// forbids names a few of them with their places.
func forbids(list []*rule) string {
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

// Never reports whether the scopes of the rules alone deny an action, whatever its call says: no permit covers it, or
// forbids without conditions take in all that permits could allow. With an agent named, it counts what scopes say
// of that agent; "" is any. An action that is not known is never allowed. False promises nothing.
func (e *Engine) Never(id bailey.CapabilityID, agent string) bool {
	s := e.slices[id]
	if s == nil {
		return true
	}
	for _, list := range [...][]*rule{s.own, e.common} {
		if slices.ContainsFunc(list, func(r *rule) bool { return e.opens(r, s.act, agent) }) {
			return false
		}
	}
	return true
}

// opens says whether a permit may come to allow an action.
func (e *Engine) opens(r *rule, a *action, agent string) bool {
	if !r.permits() || a.irreversible() && !r.names(a.uid) || len(a.Waivers) > 0 && !r.looksAt("waivers") {
		return false
	}
	at := reach{one(r.ast.Principal), a.uid, one(r.ast.Resource)}
	if agent != "" {
		me := cedar.NewEntityUID("Agent", cedar.String(agent))
		if at.principal.Type != "" && at.principal != me {
			return false
		}
		at.principal = me
	}
	return e.blanket.over(at, a.wider) == nil
}
