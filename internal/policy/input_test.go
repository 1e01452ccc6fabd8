package policy

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"

	"bailey"
)

// TestInputValues checks that if a value does not fit the type of its input, the call is denied. An input without a
// type is opaque, and the call asks.
func TestInputValues(t *testing.T) {
	e := load(t, permitPush)
	n := func(s string) json.Number { return json.Number(s) }
	for _, c := range []struct {
		name  string
		value any
		want  string // "allow", "ask" or a part of the reason of a denial
	}{
		{"depth", n("9223372036854775807"), "allow"},
		{"depth", n("-9223372036854775808"), "allow"},
		{"depth", n("9223372036854775808"), "input depth does not fit an integer"},
		{"depth", n("-9223372036854775809"), "does not fit"},
		{"depth", n("1e3"), "does not fit"},
		{"depth", n("1e1000000000"), "does not fit"},
		{"depth", n("1.0"), "does not fit"},
		{"depth", n("0.5"), "does not fit"},
		{"depth", n("-0"), "does not fit"},
		{"depth", n("007"), "does not fit"},
		{"depth", n("0x10"), "does not fit"},
		{"depth", n("1_000"), "does not fit"},
		{"depth", n(strings.Repeat("9", 100000)), "does not fit"},
		{"depth", "1", "does not fit"},
		{"depth", nil, "does not fit"},
		{"depth", true, "does not fit"},
		{"depth", 5, "allow"},
		{"depth", int64(5), "allow"},
		{"depth", 5.0, "allow"},
		{"depth", 5.5, "does not fit"},
		{"depth", 1e300, "does not fit"},
		{"depth", math.NaN(), "does not fit"},
		{"depth", math.Inf(1), "does not fit"},
		{"depth", uint8(1), "does not fit"},
		{"ref", "", "allow"},
		{"ref", "a\x00b", "allow"}, // the check of the manifest handles control characters
		{"ref", "\xff", "does not fit a string of UTF-8"},
		{"ref", nil, "does not fit"},
		{"ref", n("1"), "does not fit"},
		{"ref", []any{"a"}, "does not fit"},
		{"ref", map[string]any{"a": "b"}, "does not fit"},
		{"force", "true", "does not fit a boolean"},
		{"force", n("1"), "does not fit"},
		{"repo", nil, "does not fit"},
		{"tags", []any{}, "allow"},
		{"tags", []any{"a", n("1")}, "input tags[1] does not fit"},
		{"tags", []any{nil}, "does not fit"},
		{"tags", "a", "does not fit an array"},
		{"tags", []string{"a"}, "does not fit"},
		{"ports", []any{n("80"), n("1e9")}, "input ports[1] does not fit"},
		{"meta", map[string]any{"owner": "o"}, "allow"},
		{"meta", map[string]any{}, "input meta.owner is missing"},
		{"meta", map[string]any{"owner": "o", "inner": map[string]any{"n": "x"}}, "input meta.inner.n does not fit"},
		{"meta", map[string]any{"owner": "o", "weight": n("1.5")}, "ask"},
		{"meta", map[string]any{"owner": "o", "extra": "x"}, "ask"},
		{"meta", "x", "does not fit an object"},
		{"score", n("1.5"), "ask"},
		{"score", n("1"), "ask"},
		{"score", nil, "ask"},
		{"mixed", []any{"a", n("1")}, "ask"},
		{"maybe", "x", "ask"},
		{"maybe", nil, "ask"},
		{"_opaque", "x", "ask"},
		{"extra", "x", "ask"},
		{"Ref", "main", "ask"},
	} {
		d := e.Decide(push(c.name, c.value))
		if c.want != d.Effect.String() && !(d.Effect == bailey.Deny && strings.Contains(d.Reason, c.want)) {
			t.Errorf("%s %.40v: %v %q, want %s", c.name, c.value, d.Effect, d.Reason, c.want)
		}
		if d.Effect == bailey.Ask && d.Asks[0].ID != opaqueRule {
			t.Errorf("%s: asks by %s", c.name, d.Asks[0].ID)
		}
	}
	if d := e.Decide(request("git.push", nil)); !strings.Contains(d.Reason, "input repo is missing") {
		t.Errorf("%+v", d)
	}
}

func TestOpaque(t *testing.T) {
	s, err := parseInput(json.RawMessage(pushSchema))
	if err != nil {
		t.Fatal(err)
	}
	r, err := inputRecord(s, map[string]any{"repo": ".", "score": 1.5, "maybe": nil, "_opaque": "x", "zz": 1,
		"meta": map[string]any{"owner": "o", "weight": 2, "a.b": 1}})
	if err != nil {
		t.Fatal(err)
	}
	v, _ := r.Get(OpaqueName)
	var got []string
	for e := range v.(cedar.Set).All() {
		got = append(got, string(e.(cedar.String)))
	}
	slices.Sort(got)
	if want := "_opaque maybe meta.a.b meta.weight score zz"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestOpaqueReplaced checks that a custom rule replaces the built-in rule for opaque inputs, and that rules see the
// names of these inputs.
func TestOpaqueReplaced(t *testing.T) {
	e := load(t, permitPush, `@id("opaque-input") @reason("only scores") @approval("role=dev")
forbid (principal, action, resource)
unless { ["score"].containsAll(context.input._opaque) }
unless { context.approvals.contains("opaque-input") };`)
	want(t, e.Decide(push("score", 1.5)), bailey.Allow, "", "push")
	want(t, e.Decide(push("score", 1.5, "maybe", "x")), bailey.Ask, "only scores", "opaque-input")
	r := push("maybe", "x")
	r.Approvals = []bailey.RuleID{opaqueRule}
	want(t, load(t, permitPush).Decide(r), bailey.Allow, "", "push")
}

// TestChangedTool checks that if the program is not the pinned one, the call asks by the rule changed-tool, and only a
// grant of that rule lifts it.
func TestChangedTool(t *testing.T) {
	e := load(t, permitPush)
	r := push("ref", "topic")
	want(t, e.Decide(r), bailey.Allow, "", "push")
	r.Changed = true
	want(t, e.Decide(r), bailey.Ask, "bailey pack repin", "changed-tool")
	r.Approvals = []bailey.RuleID{opaqueRule}
	want(t, e.Decide(r), bailey.Ask, "bailey pack repin", "changed-tool")
	r.Approvals = []bailey.RuleID{changedRule}
	want(t, e.Decide(r), bailey.Allow, "", "push")
	own := load(t, permitPush, `@id("changed-tool") @reason("never") forbid (principal, action, resource) when { context.changed };`)
	want(t, own.Decide(r), bailey.Deny, "never", "changed-tool")
}

func TestShapes(t *testing.T) {
	nest := func(n int) string {
		return strings.Repeat(`{"type":"object","properties":{"p":`, n) + `{"type":"string"}` + strings.Repeat(`}}`, n)
	}
	for _, c := range []struct{ schema, want string }{
		{``, `{}`}, {`null`, `{}`}, {`true`, `{}`}, {`[]`, `{}`}, {`"object"`, `{}`}, {`{}`, `{}`}, {`{"type":"string"}`, `{}`},
		{`{"type":"object"}`, `{}`},
		{`{"type":"object","properties":null}`, `{}`},
		{`{"type":"object","properties":{"a":{"type":"string"}}}`, `{"a"?:String}`},
		{`{"type":"object","properties":{"a":{"type":"string"}},"required":["a","b"]}`, `{"a":String}`},
		{`{"type":"object","properties":{"a":{"type":"string"}},"required":"a"}`, `{}`},
		{`{"type":"object","properties":{"a":{"Type":"string"}}}`, `{}`},
		{`{"Type":"object","properties":{"a":{"type":"string"}}}`, `{}`},
		{`{"type":"object","Properties":{"a":{"type":"string"}}}`, `{}`},
		{`{"type":["object"],"properties":{"a":{"type":"string"}}}`, `{}`},
		{`{"type":"object","properties":{"a":{"type":"integer","enum":[1]},"b":{"type":"boolean"},"c":{"type":"number"},"d":{"$ref":"#"},"e":true}}`, `{"a"?:Long "b"?:Bool}`},
		{`{"type":"object","properties":{"a":{"type":"array"},"b":{"type":"array","items":{"type":"string"}},"c":{"type":"array","items":[{"type":"string"}]},"d":{"type":"array","items":{"type":"boolean"}},"e":{"type":"array","items":{"type":"array","items":{"type":"string"}}}}}`, `{"b"?:Set<String>}`},
		{`{"type":"object","properties":{"_opaque":{"type":"string"},"a":{"type":"integer"}},"required":["_opaque"]}`, `{"a"?:Long}`},
		{nest(2), `{"p"?:{"p"?:String}}`},
		{nest(maxShape), strings.Repeat(`{"p"?:`, maxShape) + `String` + strings.Repeat(`}`, maxShape)},
		{nest(maxShape + 1), strings.Repeat(`{"p"?:`, maxShape-1) + `{}` + strings.Repeat(`}`, maxShape-1)},
		{nest(2000), strings.Repeat(`{"p"?:`, maxShape-1) + `{}` + strings.Repeat(`}`, maxShape-1)},
	} {
		s, err := parseInput(json.RawMessage(c.schema))
		if err != nil {
			t.Errorf("%.80s: %v", c.schema, err)
			continue
		}
		if got := s.typeSignature(); got != c.want {
			t.Errorf("%.80s: %s, want %s", c.schema, got, c.want)
		}
	}
	for _, bad := range []string{`{`, `{"type":}`, `{"a":1}x`, strings.Repeat("[", 100000)} {
		if _, err := parseInput(json.RawMessage(bad)); err == nil {
			t.Errorf("%.40s is taken", bad)
		}
	}
}

func TestActionsRefused(t *testing.T) {
	good := testActions()[1]
	for name, spoil := range map[string]func(*Action){
		"is not an action ID":  func(a *Action) { a.ID = "push" },
		"is not an action ID ": func(a *Action) { a.ID = "pack:git.x" },
		"not an action ID":     func(a *Action) { a.ID = "gіt.push" },
		"action ID":            func(a *Action) { a.ID = `git."` },
		"not an action ID:":    func(a *Action) { a.ID = bailey.CapabilityID("a." + strings.Repeat("b", maxName)) },
		"is not a pack name":   func(a *Action) { a.Pack = "" },
		"not a pack name":      func(a *Action) { a.Pack = "git:x" },
		"risk":                 func(a *Action) { a.Risk = "" },
		"sideEffect":           func(a *Action) { a.SideEffect = "readonly" },
		"reversibility":        func(a *Action) { a.Reversibility = "Irreversible" },
		"is not JSON":          func(a *Action) { a.InputSchema = json.RawMessage("{") },
	} {
		a := good
		spoil(&a)
		if _, err := Load(Config{Actions: []Action{a}}); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Load(Config{Actions: []Action{good, good}}); err == nil || !strings.Contains(err.Error(), "there twice") {
		t.Error(err)
	}
}

// FuzzInput checks that a converted input always fits its schema. Otherwise a valid rule could read a missing or
// mistyped attribute.
func FuzzInput(f *testing.F) {
	f.Add([]byte(pushSchema), []byte(`{"repo":".","depth":3,"meta":{"owner":"o","inner":{"n":1}},"score":1.5}`))
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}}}}`), []byte(`{"a":[1,2]}`))
	f.Fuzz(func(t *testing.T, schema, input []byte) {
		a := testActions()[1]
		a.InputSchema = schema
		m, err := newModel([]Action{a})
		if err != nil {
			return
		}
		d := json.NewDecoder(bytes.NewReader(input))
		d.UseNumber()
		var in map[string]any
		if d.Decode(&in) != nil {
			return
		}
		w, err := newWorld(m.actions[0], request(a.ID, in))
		if err != nil {
			return
		}
		if err := m.cachedValidator("", m.full).Request(w.Request); err != nil {
			t.Fatal(err)
		}
	})
}
