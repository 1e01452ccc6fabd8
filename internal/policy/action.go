package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go"

	"bailey"
)

// Action is the information about one capability that the policy needs. The classes are spelled as in a manifest.
type Action struct {
	ID            bailey.CapabilityID
	Pack          string
	SideEffect    string
	Risk          string
	Reversibility string
	InputSchema   json.RawMessage // JSON Schema of an object; empty if the action takes no input
	BuiltIn       bool            // part of a pack that ships with Bailey
	Waivers       []string        // restrictions of the tool cage that its manifest waives
	Home          string          // use of a HOME kept for the project: fetches, builds, or "" for none
	Own           bool            // agents run it themselves and ask their person themselves
	Host          bool            // it acts on a source host, not on this machine
	Sandbox       bool            // it acts on a sandbox, not on this machine
	Model         bool            // it is a request to a model
}

// class is one way to group actions. Each value forms the group "<name>:<value>".
type class struct {
	name   string
	values []string
	of     func(Action) string
}

func actionClasses() []class {
	return []class{
		{"sideEffect", []string{"none", "readOnly", "additive", "mutating", "destructive"}, func(a Action) string { return a.SideEffect }},
		{"risk", []string{"low", "medium", "high", "critical"}, func(a Action) string { return a.Risk }},
		{"reversibility", []string{"readOnly", "reversible", "externallyReversible", "irreversible"}, func(a Action) string { return a.Reversibility }},
		{"waives", []string{"none", "fs.exec", isolation}, func(a Action) string {
			if len(a.Waivers) == 0 {
				return "none"
			}
			return a.Waivers[0]
		}},
		{"target", []string{"local", "host", "sandbox", "model"}, func(a Action) string {
			switch {
			case a.Host:
				return "host"
			case a.Sandbox:
				return "sandbox"
			case a.Model:
				return "model"
			}
			return local
		}},
		{"home", []string{"none", "builds", "fetches"}, func(a Action) string { return cmp.Or(a.Home, "none") }},
	}
}

const (
	builtIn   = "builtin" // group of all actions that ship with Bailey
	packGroup = "pack:"   // followed by the name of the pack
)

// action is an Action as the rules see it.
type action struct {
	Action
	uid    cedar.EntityUID
	groups []string
	entity cedar.Entity
	wider  []cedar.EntityUID // the action and its groups
	input  *shape
	sig    string                      // type of the input; equal for equal types
	peers  map[cedar.EntityUID]*action // all actions of the model, including this one
}

func (a *action) changesState() bool { return a.SideEffect != "none" && a.SideEffect != "readOnly" }

func (a *action) isIrreversible() bool { return a.Reversibility == "irreversible" }

// Only ASCII is allowed, so that no two ids look alike. A colon is not allowed, so that no id can be taken for a group.
var (
	actionForm = lazyRegexp(`^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)+$`)
	packForm   = lazyRegexp(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
)

// maxName limits an action id and a pack name, in bytes.
const maxName = 128

func newAction(in Action) (*action, error) {
	if !actionForm().MatchString(string(in.ID)) || len(in.ID) > maxName {
		return nil, fmt.Errorf("%q is not an action ID: it must be a pack, a dot and a name, in ASCII letters, digits, '_' and '-'", in.ID)
	}
	if !packForm().MatchString(in.Pack) || len(in.Pack) > maxName {
		return nil, fmt.Errorf("%s: %q is not a pack name", in.ID, in.Pack)
	}
	a := &action{Action: in, uid: ActionUID(string(in.ID)), groups: []string{packGroup + in.Pack}}
	for _, c := range actionClasses() {
		v := c.of(in)
		if !slices.Contains(c.values, v) {
			return nil, fmt.Errorf("%s: %s %q is not one of %v", in.ID, c.name, v, c.values)
		}
		a.groups = append(a.groups, c.name+":"+v)
	}
	if in.BuiltIn {
		a.groups = append(a.groups, builtIn)
	}
	var err error
	if a.input, err = parseInput(in.InputSchema); err != nil {
		return nil, fmt.Errorf("%s: %w", in.ID, err)
	}
	a.sig = a.input.typeSignature()
	a.wider = []cedar.EntityUID{a.uid}
	for _, g := range a.groups {
		a.wider = append(a.wider, ActionUID(g))
	}
	a.entity = cedar.Entity{UID: a.uid, Parents: cedar.NewEntityUIDSet(a.wider[1:]...)}
	return a, nil
}

func ActionUID(id string) cedar.EntityUID { return cedar.NewEntityUID("Action", cedar.String(id)) }

// Wrap is the action of starting an agent in the agent jail. No manifest has it, so no agent can call it; an operator
// asks.
const Wrap bailey.CapabilityID = "agent.wrap"

// wrapAction is part of every schema. The input model lists the endpoints that this kind of agent needs; the input
// named lists those that an operator named.
func wrapAction() Action {
	return Action{ID: Wrap, Pack: "agent", SideEffect: "mutating", Risk: "medium", Reversibility: "reversible",
		BuiltIn: true,
		InputSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["agent","model","named","memoryMiB","tasks","run","keepHome"],"properties":{` +
			`"agent":{"type":"string"},"model":{"type":"array","items":{"type":"string"}},"named":{"type":"array","items":{"type":"string"}},"memoryMiB":{"type":"integer"},"tasks":{"type":"integer"},` +
			`"run":{"type":"boolean"},"keepHome":{"type":"boolean"}}}`)}
}
