package pack

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"bailey"
)

// Change is one new right of a pack, or a change that affects the result of policy rules.
type Change struct {
	Capability bailey.CapabilityID `json:"capability"`
	What       string              `json:"what"` // key in the manifest
	// text from the manifests; must be escaped before it is written to a terminal
	Text string `json:"text"`
}

// Diff returns the rights of now that old does not have, in the order of now's capabilities. It omits a change only if
// it is certainly a reduction. It includes changes that it cannot judge, and all keys that it does not know. A milder
// class counts too, because rules for the stricter class no longer apply. If old is nil, all rights are new.
func Diff(old, now *Pack) []Change {
	before := map[bailey.CapabilityID]*Capability{}
	if old != nil {
		for _, c := range old.Capabilities {
			before[c.ID] = c
		}
	}
	var list []Change
	for _, c := range now.Capabilities {
		was, ok := before[c.ID]
		if !ok {
			runs := c.Command
			if runs == "" {
				runs = text(c.spec.Backend)
			}
			if c.Uncaged() {
				runs += " without a cage"
			}
			list = append(list, Change{c.ID, "new", fmt.Sprintf("sideEffectClass %s, risk %s, reversibility %s, runs %s", c.SideEffect, c.Risk, c.Reversibility, runs)})
			if was = (&Capability{ID: c.ID}); len(c.spec.Sandbox.Egress)+len(c.spec.Credentials)+len(c.spec.Sandbox.Write)+len(c.spec.Sandbox.Exec) == 0 {
				continue
			}
			was.spec = c.spec // For a new capability, list only its egress, credentials, writes and executions.
			was.spec.Sandbox.Egress, was.spec.Sandbox.Write, was.spec.Sandbox.Exec, was.spec.Credentials = nil, nil, nil, nil
		}
		d := differ{id: c.ID}
		d.keys("", unpack(was.spec), unpack(c.spec))
		list = append(list, d.list...)
	}
	return list
}

// unpack returns a manifest as its digest covers it, so no field can be forgotten here.
func unpack(m manifest) map[string]any {
	var tree map[string]any
	text, err := json.Marshal(m)
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		panic(err) // cannot happen, as in fill: every value has a JSON form
	}
	for _, words := range []string{"pack", "version", "id", "description", "docs"} {
		delete(tree, words) // descriptive only, not enforced
	}
	return tree
}

type differ struct {
	id   bailey.CapabilityID
	list []Change
}

func (d *differ) add(what, format string, args ...any) {
	d.list = append(d.list, Change{d.id, what, fmt.Sprintf(format, args...)})
}

// keys compares two mappings of a manifest. at is the prefix of their keys.
func (d *differ) keys(at string, was, now map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(merged(was, now))) {
		a, b, what := was[key], now[key], at+key
		if text(a) == text(b) {
			continue
		}
		switch key {
		case "sandboxProfile":
			d.keys(key+".", object(a), object(b))
		case "env":
			d.env(object(a), object(b))
		case "inputSchema":
			d.schema("input", object(a), object(b))
		case "ro", "rw", "exec", "egress", "credentials":
			d.added(what, list(a), list(b))
		case "hide", "keep":
			d.gone(what, list(a), list(b))
		case "memoryMiB", "tasks", "timeout":
			d.limit(what, a, b)
		case "isolation":
			d.isolation(value(a), value(b))
		default:
			d.add(what, "%s → %s", value(a), value(b))
		}
	}
}

// env compares variables. Their names are chosen by the author and are not manifest keys.
func (d *differ) env(was, now map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(merged(was, now))) {
		if a, b := was[name], now[name]; text(a) != text(b) {
			d.add("env."+name, "%s → %s", value(a), value(b))
		}
	}
}

// isolation compares the kinds of isolation.
func (d *differ) isolation(was, now string) {
	if now == string(Open) {
		now += ": it runs without a cage, with all that its user may do"
	}
	d.add("isolation", "%s → %s", was, now)
}

// limit compares two limits. An absent limit means the default, which may be higher.
func (d *differ) limit(what string, was, now any) {
	a, had := was.(float64)
	b, has := now.(float64)
	switch {
	case had && has && b <= a:
	case what == "timeout":
		d.add(what, "%s → %s", time.Duration(a), time.Duration(b))
	default:
		d.add(what, "%s → %s", value(was), value(now))
	}
}

func (d *differ) added(what string, was, now []any) {
	for _, v := range now {
		if !slices.ContainsFunc(was, func(o any) bool { return text(o) == text(v) }) {
			d.add(what, "+ %s", value(v))
		}
	}
}

func (d *differ) gone(what string, was, now []any) {
	for _, v := range was {
		if !slices.ContainsFunc(now, func(o any) bool { return text(o) == text(v) }) {
			d.add(what, "- %s", value(v))
		}
	}
}

// schema compares two schemas keyword by keyword.
func (d *differ) schema(at string, was, now map[string]any) {
	for _, word := range slices.Sorted(maps.Keys(merged(was, now))) {
		a, had := was[word]
		b, has := now[word]
		switch {
		case text(a) == text(b) || word == "description" || word == "title":
		case word == "properties":
			d.inputs(at, object(a), object(b))
			if now["additionalProperties"] != false { // a property without a description is accepted like any other key
				d.dropped(at, object(a), object(b))
			}
		case word == "required":
			d.gone(at+" required", list(a), list(b))
		case !narrower(word, a, b, had, has):
			d.add(at, "%s: %s → %s", word, value(a), value(b))
		}
	}
}

func (d *differ) inputs(at string, was, now map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		a, had := was[name]
		what := at + " " + name
		switch b := now[name]; {
		case !had:
			d.add(what, "+ %s", value(b))
		case text(a) == text(b):
		case a == true || a == false || b == true || b == false:
			d.add(what, "%s → %s", value(a), value(b))
		default:
			d.schema(what, object(a), object(b))
		}
	}
}

func (d *differ) dropped(at string, was, now map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, has := now[name]; !has {
			d.add(at+" "+name, "- %s", value(was[name]))
		}
	}
}

// narrower reports whether a changed keyword certainly accepts fewer values than before.
func narrower(word string, a, b any, had, has bool) bool {
	x, number1 := a.(float64)
	y, number2 := b.(float64)
	switch word {
	case "maxLength", "maximum", "exclusiveMaximum", "maxItems", "maxProperties":
		return has && (!had || number1 && number2 && y <= x)
	case "minLength", "minimum", "exclusiveMinimum", "minItems", "minProperties":
		return has && (!had || number1 && number2 && y >= x)
	case "enum":
		d := differ{}
		d.added("", list(a), list(b))
		return has && (!had || len(d.list) == 0)
	case "pattern", "const":
		return has && !had
	}
	return false
}

func merged(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, b)
	return all
}

func object(v any) map[string]any { m, _ := v.(map[string]any); return m }
func list(v any) []any            { l, _ := v.([]any); return l }

// text returns v as JSON with sorted keys.
func text(v any) string { b, _ := json.Marshal(v); return string(b) }

// value returns v for display.
func value(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		return v
	}
	return text(v)
}
