package gate

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"bailey"
)

// parking is a world whose policy asks about every call, whose approver has not answered yet, and whose hook changes
// the input.
func parking(t *testing.T) (w *world, come func(bailey.Call) bailey.Result) {
	w = newWorld(t)
	w.edition = "hooks of now"
	w.decide = func(_ int, r bailey.Request) bailey.Decision {
		if slices.Contains(r.Approvals, "ask") {
			return bailey.Decision{Effect: bailey.Allow, Policy: "p1"}
		}
		return bailey.Decision{Effect: bailey.Ask, Policy: "p1", Asks: []bailey.Rule{{ID: "ask"}}}
	}
	w.verdict = Verdict{Effect: bailey.Allow, Input: map[string]any{"word": "milder"}, Asked: []bailey.AskedHook{{Hook: 1, Effect: "changed"}}}
	granted := w.answer
	w.answer = func(bailey.Question) bailey.Answer { return bailey.Answer{Pending: true} }
	g := w.gate()
	come = func(c bailey.Call) bailey.Result {
		w.did, w.intents, w.outcomes = nil, nil, nil
		return g.Do(t.Context(), c)
	}
	if res := come(call()); res.Status != bailey.Pending || len(res.Decision.Asks) != 1 || !w.happened("pre") || len(w.parked) != 1 {
		t.Fatalf("%+v after %v", res, w.did)
	}
	w.answer = granted
	return w, come
}

// TestNoHookRunsTwice checks that when a pending call is repeated, it runs with the input that its hooks left and the
// person saw, even if the hooks would now decide otherwise. The receipt must name the call for which the hooks were
// asked. All other stages must run as usual.
func TestNoHookRunsTwice(t *testing.T) {
	for name, mind := range map[string]Verdict{
		"blocks by now":   {Rule: bailey.Rule{ID: "hook:1"}},
		"another input":   {Effect: bailey.Allow, Input: map[string]any{"word": "wilder"}},
		"nothing changed": {Effect: bailey.Allow},
	} {
		w, come := parking(t)
		first := w.intents[0].Receipt
		w.verdict = mind
		res := come(call())
		o := w.one()
		want := []string{"intent", "restore", "plan", "decide", "restore", "plan", "decide", "ask", "decide", "decide", "take", "lend", "run -- milder", "post", "outcome"}
		if res.Err != nil || !slices.Equal(w.did, want) {
			t.Errorf("%s: %v\ndid  %v\nwant %v", name, res.Err, w.did, want)
		}
		if o.HooksAt != first || len(o.Hooks) != 0 {
			t.Errorf("%s: the receipt has %q, and the hooks %v were asked for %q", name, o.HooksAt, o.Hooks, first)
		}
	}
}

// TestParkedIsStillDecided checks that the earlier verdict of the hooks does not loosen any decision of now.
func TestParkedIsStillDecided(t *testing.T) {
	for n := 1; n <= 4; n++ { // first, again, and after the answer without and with the grant
		w, come := parking(t)
		decide, from := w.decide, w.asked
		w.decide = func(i int, r bailey.Request) bailey.Decision {
			if i == from+n {
				return bailey.Decision{Reason: "night fell"}
			}
			return decide(i, r)
		}
		if res := come(call()); res.Err == nil || res.Executed || w.happened("pre") {
			t.Errorf("decision %d: %v after %v", n, res.Err, w.did)
		}
	}
}

// TestHeardIsOfOneCall checks that a verdict counts only for the same call of the same agent in the same session, and
// only for the same hooks.
func TestHeardIsOfOneCall(t *testing.T) {
	for name, change := range map[string]func(*world, *bailey.Call){
		"another input":     func(_ *world, c *bailey.Call) { c.Input["word"] = "hullo" },
		"one input more":    func(_ *world, c *bailey.Call) { c.Input["dir"] = "/x" },
		"another session":   func(_ *world, c *bailey.Call) { c.Session.ID = "s-2" },
		"none":              func(_ *world, c *bailey.Call) { c.Session.Single = true },
		"unattended":        func(_ *world, c *bailey.Call) { c.Session.Unattended = true },
		"another agent":     func(_ *world, c *bailey.Call) { c.Principal.Agent = "b" },
		"another person":    func(_ *world, c *bailey.Call) { c.Principal.Person = "q" },
		"another directory": func(_ *world, c *bailey.Call) { c.Dir = "/v" },
		"a step":            func(_ *world, c *bailey.Call) { c.Within = &bailey.Within{} },
		"other hooks":       func(w *world, _ *bailey.Call) { w.edition = "others" },
		"no hooks":          func(w *world, _ *bailey.Call) { w.edition = "" },
		"no question":       func(w *world, _ *bailey.Call) { clear(w.parked) },
		"what is no input":  func(w *world, _ *bailey.Call) { spoil(w) },
	} {
		w, come := parking(t)
		in := call()
		change(w, &in)
		if come(in); !w.happened("pre") || w.one().HooksAt != "" {
			t.Errorf("%s: hooks were not asked: %v", name, w.did)
		}
	}
}

func spoil(w *world) {
	for of, h := range w.parked {
		h.Input = []byte("{")
		w.parked[of] = h
	}
}

// TestHeardIsNobodysElse checks that each repeated call has its own copy of the input, with all digits of its numbers.
func TestHeardIsNobodysElse(t *testing.T) {
	h := bailey.Heard{Effect: bailey.Ask, Rule: bailey.Rule{ID: "hook:1"}, Input: []byte(`{"n":12345678901234567890.10,"list":[{}]}`)}
	a, err := decodeVerdict(h)
	if err != nil || a.Effect != bailey.Ask || a.Rule.ID != "hook:1" || a.Input["n"] != json.Number("12345678901234567890.10") {
		t.Fatalf("%+v, %v", a, err)
	}
	a.Input["list"].([]any)[0] = "mine"
	if b, _ := decodeVerdict(h); !reflect.DeepEqual(b.Input["list"], []any{map[string]any{}}) {
		t.Errorf("%+v", b)
	}
	if v, err := decodeVerdict(bailey.Heard{}); err != nil || v.Effect != bailey.Deny || v.Input != nil {
		t.Errorf("nothing was heard: %+v, %v", v, err)
	}
}
