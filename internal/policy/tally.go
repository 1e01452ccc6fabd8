package policy

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

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

// dirCondition restricts a directory to the common one if that is specific enough: neither / nor a directory directly below
// it.
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
				fmt.Sprintf("%s is not restricted: %d calls have values that no rule can hold (%s)", t.name, c.bad[why],
					why))
			continue
		}
		list = append(list, fmt.Sprintf("%s: %d calls have values that no rule can hold (%s); they are left out", t.name, c.bad[why], why))
	}
	switch {
	case c.path:
	case c.hasManyValues() && cond == "":
		list = append(list, fmt.Sprintf("%s is not restricted: more than %d values, or long ones", t.name, maxValues))
	}
	return list
}
