package pack

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
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
				runs = c.callsText()
			}
			if c.Uncaged() {
				runs += " without a jail"
			} else if waivers := c.Waivers(); len(waivers) > 0 {
				runs += ", with the waiver " + strings.Join(waivers, ", ")
			}
			list = append(list,
				Change{c.ID, "new",
					fmt.Sprintf("sideEffectClass %s, risk %s, reversibility %s, runs %s", c.SideEffect, c.Risk,
						c.Reversibility, runs)})
			if was = (&Capability{ID: c.ID}); len(c.spec.Sandbox.Egress)+len(c.spec.Credentials)+
				len(c.spec.Sandbox.Write)+len(c.spec.Sandbox.Exec) == 0 {
				continue
			}
			was.spec = c.spec // For a new capability, list only its egress, credentials, writes and executions.
			was.spec.Sandbox.Egress, was.spec.Sandbox.Write, was.spec.Sandbox.Exec, was.spec.Credentials = nil, nil, nil, nil
		}
		d := manifestDiff{id: c.ID}
		d.compareKeys("", manifestTree(was.spec), manifestTree(c.spec))
		list = append(list, d.list...)
	}
	return list
}

// manifestTree returns a manifest as its digest covers it, so no field can be forgotten here.
func manifestTree(m manifest) map[string]any {
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

type manifestDiff struct {
	id   bailey.CapabilityID
	list []Change
}

func (d *manifestDiff) addChange(what, format string, args ...any) {
	d.list = append(d.list, Change{d.id, what, fmt.Sprintf(format, args...)})
}

// compareKeys compares two mappings of a manifest. at is the prefix of their keys.
func (d *manifestDiff) compareKeys(at string, was, now map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(mergeMaps(was, now))) {
		a, b, what := was[key], now[key], at+key
		if jsonText(a) == jsonText(b) {
			continue
		}
		switch key {
		case "sandboxProfile":
			d.compareKeys(key+".", asObject(a), asObject(b))
		case "env":
			d.compareEnv(asObject(a), asObject(b))
		case "inputSchema":
			d.compareSchemas("input", asObject(a), asObject(b))
		case "ro", "rw", "exec", "egress", "credentials":
			d.reportAdded(what, asList(a), asList(b))
		case "hide", "keep":
			d.reportRemoved(what, asList(a), asList(b))
		case "memoryMiB", "tasks", "timeout":
			d.compareLimit(what, a, b)
		case "isolation":
			d.compareIsolation(displayValue(a), displayValue(b))
		default:
			d.addChange(what, "%s → %s", displayValue(a), displayValue(b))
		}
	}
}

// compareEnv compares variables. Their names are chosen by the author and are not manifest keys.
func (d *manifestDiff) compareEnv(was, now map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(mergeMaps(was, now))) {
		if a, b := was[name], now[name]; jsonText(a) != jsonText(b) {
			d.addChange("env."+name, "%s → %s", displayValue(a), displayValue(b))
		}
	}
}

// compareIsolation compares the kinds of isolation.
func (d *manifestDiff) compareIsolation(was, now string) {
	if now == string(Open) {
		now += ": it runs without a jail, with all rights of its user"
	}
	d.addChange("isolation", "%s → %s", was, now)
}

// compareLimit compares two limits. An absent limit means the default, which may be higher.
func (d *manifestDiff) compareLimit(what string, was, now any) {
	a, had := was.(float64)
	b, has := now.(float64)
	switch {
	case had && has && b <= a:
	case what == "timeout":
		d.addChange(what, "%s → %s", time.Duration(a), time.Duration(b))
	default:
		d.addChange(what, "%s → %s", displayValue(was), displayValue(now))
	}
}

func (d *manifestDiff) reportAdded(what string, was, now []any) {
	for _, v := range now {
		if !slices.ContainsFunc(was, func(o any) bool { return jsonText(o) == jsonText(v) }) {
			d.addChange(what, "+ %s", displayValue(v))
		}
	}
}

func (d *manifestDiff) reportRemoved(what string, was, now []any) {
	for _, v := range was {
		if !slices.ContainsFunc(now, func(o any) bool { return jsonText(o) == jsonText(v) }) {
			d.addChange(what, "- %s", displayValue(v))
		}
	}
}

// compareSchemas compares two schemas keyword by keyword.
func (d *manifestDiff) compareSchemas(at string, was, now map[string]any) {
	for _, word := range slices.Sorted(maps.Keys(mergeMaps(was, now))) {
		a, had := was[word]
		b, has := now[word]
		switch {
		case jsonText(a) == jsonText(b) || word == "description" || word == "title":
		case word == "properties":
			d.compareInputs(at, asObject(a), asObject(b))
			if now["additionalProperties"] != false { // a property without a description is accepted like any other key
				d.reportDroppedInputs(at, asObject(a), asObject(b))
			}
		case word == "required":
			d.reportRemoved(at+" required", asList(a), asList(b))
		case !isNarrower(word, a, b, had, has):
			d.addChange(at, "%s: %s → %s", word, displayValue(a), displayValue(b))
		}
	}
}

func (d *manifestDiff) compareInputs(at string, was, now map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		a, had := was[name]
		what := at + " " + name
		switch b := now[name]; {
		case !had:
			d.addChange(what, "+ %s", displayValue(b))
		case jsonText(a) == jsonText(b):
		case a == true || a == false || b == true || b == false:
			d.addChange(what, "%s → %s", displayValue(a), displayValue(b))
		default:
			d.compareSchemas(what, asObject(a), asObject(b))
		}
	}
}

func (d *manifestDiff) reportDroppedInputs(at string, was, now map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, has := now[name]; !has {
			d.addChange(at+" "+name, "- %s", displayValue(was[name]))
		}
	}
}

// isNarrower reports whether a changed keyword certainly accepts fewer values than before.
func isNarrower(word string, a, b any, had, has bool) bool {
	x, number1 := a.(float64)
	y, number2 := b.(float64)
	switch word {
	case "maxLength", "maximum", "exclusiveMaximum", "maxItems", "maxProperties":
		return has && (!had || number1 && number2 && y <= x)
	case "minLength", "minimum", "exclusiveMinimum", "minItems", "minProperties":
		return has && (!had || number1 && number2 && y >= x)
	case "enum":
		d := manifestDiff{}
		d.reportAdded("", asList(a), asList(b))
		return has && (!had || len(d.list) == 0)
	case "pattern", "const":
		return has && !had
	}
	return false
}

func mergeMaps(a, b map[string]any) map[string]any {
	all := map[string]any{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

func asObject(v any) map[string]any { m, _ := v.(map[string]any); return m }
func asList(v any) []any            { l, _ := v.([]any); return l }

// jsonText returns v as JSON with sorted keys.
func jsonText(v any) string { b, _ := json.Marshal(v); return string(b) }

// displayValue returns v for display.
func displayValue(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		return v
	}
	return jsonText(v)
}

// callsText returns the steps of a workflow, or the backend of another capability that has no command.
func (m *Capability) callsText() string {
	if len(m.spec.Backend.Steps) == 0 {
		return jsonText(m.spec.Backend)
	}
	var calls []string
	for _, s := range m.spec.Backend.Steps {
		call := s.Call
		if len(s.Input) > 0 {
			call += " " + jsonText(s.Input)
		}
		calls = append(calls, call)
	}
	return strings.Join(calls, ", then ")
}
