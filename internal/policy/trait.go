package policy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
)

// trait is one property of a call that a suggested rule can test.
type trait struct {
	name  string // as in [Past.Hidden]
	expr  string // Cedar expression
	guard string // Cedar condition for its presence; "" if always present
	set   bool
	most  int // bytes of a value
}

// Limits of a suggested rule.
const (
	maxValues = 8   // values of one trait
	maxShort  = 64  // bytes of an input value
	maxPlace  = 512 // bytes of a path or a name
)

// facet is the value of a trait in one call.
type facet struct {
	values []string // Cedar text: one value, or the elements of a set
	plain  string   // unquoted text
	absent bool
	path   bool   // an input that a rule sees as a resolved path
	bad    string // why no rule can express it
	long   bool
}

// traitsOf returns the traits of an action's calls, in the order in which rules list them.
func traitsOf(a *action) []trait {
	list := []trait{
		{name: "principal", expr: "principal", most: maxPlace}, {name: "resource", expr: "resource", most: maxPlace},
		{name: "cage", expr: "context.cage", most: maxShort},
		{name: "absent", expr: "context.absent", set: true, most: maxShort},
		{name: "unattended", expr: "context.unattended", most: maxShort},
		{name: "dir", expr: "context.dir", most: maxPlace},
		{name: "paths", expr: "context.paths", set: true, most: maxPlace},
		{name: "restores", expr: "context.restores", set: true, most: maxShort},
		{name: "egress", expr: "context.egress", set: true, most: maxPlace},
		{name: "waivers", expr: "context.waivers", set: true, most: maxShort},
	}
	for _, f := range a.input.fields {
		if f.shape == nil || f.shape.kind > flag || hasHiddenRune(f.name) {
			continue
		}
		t := trait{name: "input." + f.name, most: maxShort}
		if t.expr, t.guard = inputExpr(f.name); f.required {
			t.guard = ""
		}
		list = append(list, t)
	}
	return list
}

// facetsOf returns the values of the traits in one call.
func facetsOf(traits []trait, p Past, w *cedarRequest) []facet {
	out := make([]facet, len(traits))
	input := w.context["input"].(cedar.Record)
	for i, t := range traits {
		if name, in := strings.CutPrefix(t.name, "input."); in {
			v, there := input.Get(cedar.String(name))
			_, path := p.Request.Paths[name]
			out[i] = facet{absent: !there, path: path}
			if there && !path {
				out[i].setValue(t, v)
			}
		} else if v := w.traitValue(t.name); v != nil {
			out[i].setValue(t, v)
		}
		if overlapsHidden(t.name, p.Hidden) && !out[i].absent && !out[i].path {
			out[i] = facet{bad: "hidden in the receipt"}
		}
	}
	return out
}

// traitValue returns the Cedar value of a trait that is not an input.
func (w *cedarRequest) traitValue(name string) cedar.Value {
	switch name {
	case "principal":
		return w.agent.UID
	case "resource":
		return w.target.UID
	}
	return w.context[cedar.String(name)]
}

// setValue records a value, or the reason why it cannot be expressed.
func (f *facet) setValue(t trait, v cedar.Value) {
	switch v := v.(type) {
	case cedar.String:
		f.plain = string(v)
		f.addText(t, string(v), cedarLiteral(string(v)))
	case cedar.EntityUID:
		f.addText(t, string(v.ID), string(v.Type)+"::"+cedarLiteral(string(v.ID)))
	case cedar.Long:
		f.values = []string{strconv.FormatInt(int64(v), 10)}
	case cedar.Boolean:
		f.values = []string{strconv.FormatBool(bool(v))}
	case cedar.Set:
		for e := range v.All() {
			s, _ := e.(cedar.String)
			f.addText(t, string(s), cedarLiteral(string(s)))
		}
		slices.Sort(f.values)
	}
}

func (f *facet) addText(t trait, plain, cedar string) {
	f.long = f.long || len(plain) > t.most
	switch {
	case hasHiddenRune(plain):
		f.bad = "invisible characters"
	case strings.Contains(plain, "[REDACTED_"):
		f.bad = "hidden in the receipt"
	default:
		f.values = append(f.values, cedar)
	}
}

// exactCondition returns a condition that holds for calls with this facet, or "" if no rule can express it.
func (f facet) exactCondition(t trait) string {
	switch {
	case f.path || f.bad != "" || f.long:
		return ""
	case f.absent:
		return "!(" + t.guard + ")"
	case t.set && len(f.values) == 0:
		return t.expr + ".isEmpty()"
	case t.set:
		return t.expr + " == " + setOf(f.values)
	case t.guard != "":
		return t.guard + " && " + t.expr + " == " + f.values[0]
	}
	return t.expr + " == " + f.values[0]
}
