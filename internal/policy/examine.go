package policy

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"bailey"
)

// This file is the interface of package review. Nothing in it takes part in a decision.

// Verdict is a decision, its cause, and the request in Cedar terms. It is for the review of rules.
type Verdict struct {
	bailey.Decision
	Cause   Cause
	Fault   string        // Cedar's message about a broken rule
	Request *CedarRequest // nil for Unknown and Unfit
}

// Examine decides like Decide, and its result has every attribute of the request, so that the caller can inspect them.
func (e *Engine) Examine(r bailey.Request) Verdict {
	return e.decideWith(&r, contextAttributes())
}

// Rule returns the rule with an id, or nil.
func (e *Engine) Rule(id bailey.RuleID) *LoadedRule { return e.rules[id] }

// Rules returns all rules, including the built-in ones, in no particular order.
func (e *Engine) Rules() iter.Seq[*LoadedRule] { return maps.Values(e.rules) }

// RulesFor returns the rules whose action scope includes an action.
func (e *Engine) RulesFor(id bailey.CapabilityID) []*LoadedRule {
	if s := e.slices[id]; s != nil {
		return slices.Concat(s.own, e.common)
	}
	return nil
}

// Action returns an action by its id. ok is false if there is none.
func (e *Engine) Action(id bailey.CapabilityID) (a Action, ok bool) {
	if s := e.slices[id]; s != nil {
		return s.act.Action, true
	}
	return a, false
}

// Actions returns all actions, including [Wrap], sorted by id.
func (e *Engine) Actions() (list []Action) {
	for _, s := range e.slices {
		list = append(list, s.act.Action)
	}
	slices.SortFunc(list, func(a, b Action) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Input is an input of an action that rules see as a string, an integer or a boolean.
type Input struct {
	Name     string
	Required bool
}

// ScalarInputs returns such inputs of an action, sorted by name.
func (e *Engine) ScalarInputs(id bailey.CapabilityID) (list []Input) {
	for _, f := range e.slices[id].act.input.fields {
		if f.shape != nil && f.shape.kind <= flag {
			list = append(list, Input{f.name, f.required})
		}
	}
	return list
}

// Unsliced returns an engine that passes every rule to the library for every call, and otherwise decides alike. It is
// the reference for tests and measurements of slices.
func (e *Engine) Unsliced() *Engine {
	flat := *e
	flat.common, flat.slices = slices.Collect(e.Rules()), map[bailey.CapabilityID]*ruleSlice{}
	for id, s := range e.slices {
		flat.slices[id] = &ruleSlice{act: s.act, reads: contextAttributes()}
	}
	return &flat
}
