package review

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"bailey/internal/policy"
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
func traitsOf(inputs []policy.Input) []trait {
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
	for _, in := range inputs {
		if hasHiddenRune(in.Name) {
			continue
		}
		t := trait{name: "input." + in.Name, most: maxShort}
		if t.expr, t.guard = inputExpr(in.Name); in.Required {
			t.guard = ""
		}
		list = append(list, t)
	}
	return list
}

// facetsOf returns the values of the traits in one call.
func facetsOf(traits []trait, p Past, w *policy.CedarRequest) []facet {
	out := make([]facet, len(traits))
	input := inputOf(w)
	for i, t := range traits {
		if name, in := strings.CutPrefix(t.name, "input."); in {
			v, there := input.Get(cedar.String(name))
			_, path := p.Request.Paths[name]
			out[i] = facet{absent: !there, path: path}
			if there && !path {
				out[i].setValue(t, v)
			}
		} else if v := traitValue(w, t.name); v != nil {
			out[i].setValue(t, v)
		}
		if overlapsHidden(t.name, p.Hidden) && !out[i].absent && !out[i].path {
			out[i] = facet{bad: "hidden in the receipt"}
		}
	}
	return out
}

// traitValue returns the Cedar value of a trait that is not an input.
func traitValue(w *policy.CedarRequest, name string) cedar.Value {
	switch name {
	case "principal":
		return w.Principal
	case "resource":
		return w.Resource
	}
	v, _ := w.Context.Get(cedar.String(name))
	return v
}

// inputOf returns context.input.
func inputOf(w *policy.CedarRequest) cedar.Record {
	v, _ := w.Context.Get("input")
	return v.(cedar.Record)
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

// traitSummary summarises the values of one trait over many calls, in bounded memory.
type traitSummary struct {
	values map[string]bool // Cedar text; at most one more than a rule lists
	long   bool
	absent int
	path   bool
	calls  int
	bad    map[string]int // number of calls, by the reason why no rule can express the value
	common string         // common directory of the texts, or ""
}

func (c *traitSummary) addFacet(f facet) {
	c.calls++
	c.path = c.path || f.path
	switch {
	case f.absent:
		c.absent++
		return
	case f.bad != "":
		if c.bad == nil {
			c.bad = map[string]int{}
		}
		c.bad[f.bad]++
		return
	}
	c.long = c.long || f.long
	if c.values == nil {
		c.values, c.common = map[string]bool{}, f.plain
	}
	c.common = commonDir(c.common, f.plain)
	for _, v := range f.values {
		if len(c.values) <= maxValues && !f.long {
			c.values[v] = true
		}
	}
}

// commonDir returns the directory that two absolute paths have in common.
func commonDir(a, b string) string {
	if !path.IsAbs(a) || !path.IsAbs(b) {
		return ""
	}
	for a != b && !strings.HasPrefix(b, strings.TrimSuffix(a, "/")+"/") {
		a = path.Dir(a)
	}
	return a
}

// hasManyValues reports whether there are more values than a rule lists, or long ones.
func (c *traitSummary) hasManyValues() bool { return c.long || len(c.values) > maxValues }

// conditionFor returns a condition that holds for all counted calls, as far as a rule can express it. "" means that it
// holds for every call. If wide is set, the condition must not exclude any counted call: if one value cannot be
// expressed, it is "".
func (c *traitSummary) conditionFor(t trait, wide bool) string {
	values := slices.Sorted(maps.Keys(c.values))
	bad := 0
	for _, n := range c.bad {
		bad += n
	}
	switch {
	case c.path, c.calls == 0, wide && bad > 0:
		return ""
	case t.name == "dir" && c.hasManyValues():
		return c.dirCondition(t, wide)
	case c.hasManyValues(), slices.Equal(values, []string{"false", "true"}) && c.absent == 0 && t.guard == "":
		return ""
	case t.set:
		return setCondition(t, values)
	case len(values) == 0 && bad > 0:
		return ""
	case len(values) == 0:
		return "!(" + t.guard + ")"
	case t.name == "dir" && values[0] == `""` && len(values) == 1:
		return ""
	}
	is := t.expr + " == " + values[0]
	if len(values) > 1 {
		is = setOf(values) + ".contains(" + t.expr + ")"
	}
	switch {
	case t.guard == "":
		return is
	case c.absent > 0:
		return fmt.Sprintf("if %s then %s else true", t.guard, is)
	}
	return t.guard + " && " + is
}

// setCondition restricts a set to the values seen in it. If none was seen, only absent layers need a condition.
func setCondition(t trait, values []string) string {
	switch {
	case len(values) > 0:
		return setOf(values) + ".containsAll(" + t.expr + ")"
	case t.name == "absent":
		return t.expr + ".isEmpty()"
	}
	return ""
}

// dirCondition restricts a directory to the common one if that is specific enough: neither / nor a directory directly
// below it.
func (c *traitSummary) dirCondition(t trait, wide bool) string {
	if strings.Count(c.common, "/") < 2 || c.long || hasHiddenRune(c.common) || wide && len(c.bad) > 0 {
		return ""
	}
	return fmt.Sprintf("%s == %s || %s like %s", t.expr, cedarLiteral(c.common), t.expr, prefixPattern(c.common+"/"))
}

// traitNotes describes the values that a condition does not restrict and the calls that it excludes.
func (c *traitSummary) traitNotes(t trait) (list []string) {
	cond := c.conditionFor(t, false)
	for _, why := range slices.Sorted(maps.Keys(c.bad)) {
		if cond == "" {
			list = append(list,
				fmt.Sprintf("%s is not restricted: %d calls have values that no rule can have (%s)", t.name, c.bad[why],
					why))
			continue
		}
		list = append(list, fmt.Sprintf("%s: %d calls have values that no rule can have (%s); they are left out", t.name, c.bad[why], why))
	}
	switch {
	case c.path:
	case c.hasManyValues() && cond == "":
		list = append(list, fmt.Sprintf("%s is not restricted: more than %d values, or long ones", t.name, maxValues))
	}
	return list
}
