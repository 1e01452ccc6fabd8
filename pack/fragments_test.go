package pack

import (
	"strings"
	"testing"
)

const fragmentPack = `name: demo
version: 1.0.0
fragments:
  reading:
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    backend: {type: subprocess, command: demo, args: [--plain], env: {DEMO_PAGER: cat, DEMO_X: a}}
    inputSchema: {type: object, properties: {name: {type: string}}}
  asks:
    risk: high
    input_schema: {required: [name]}
capabilities:
  - name: show
    like: [reading, asks]
    backend: {args: [show, '{{ input.name }}'], env: {DEMO_X: b}}
    inputSchema: {properties: {all: {type: boolean}}}
  - {name: list, like: reading, sideEffectClass: none, backend: {args: [list]}}
`

// TestFragments checks that a capability is read as if it contained its fragments, and which fragments are faults.
func TestFragments(t *testing.T) {
	p, err := Parse("demo.yaml", []byte(fragmentPack))
	if err != nil {
		t.Fatal(err)
	}
	show, list := p.Capabilities[0], p.Capabilities[1]
	if got := strings.Join(show.spec.Backend.Args, " "); got != "--plain show {{ input.name }}" {
		t.Errorf("args: %s", got)
	}
	if show.spec.Env["DEMO_PAGER"] != "cat" || show.spec.Env["DEMO_X"] != "b" || list.spec.Env["DEMO_X"] != "a" {
		t.Errorf("env: %v, %v", show.spec.Env, list.spec.Env)
	}
	if show.Risk != High || list.Risk != Low || list.SideEffect != None || show.SideEffect != ReadOnly {
		t.Errorf("%s %s, %s %s", show.Risk, show.SideEffect, list.Risk, list.SideEffect)
	}
	if _, err := show.Check(map[string]any{"all": true}, false); err == nil || !strings.Contains(err.Error(), "/name is missing") {
		t.Errorf("without the required input of a fragment: %v", err)
	}
	if _, err := list.Check(map[string]any{}, false); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"like: reading,", "like: readin,", `there is no fragment "readin"; did you mean "reading"?`},
		{"like: [reading, asks]", "like: reading", "no capability is like the fragment asks"},
		{"risk: high", "risk: high\n    like: reading", "fragment asks cannot be like another"},
		{"  asks:", "  reading:", "twice"},
		{"risk: low", "risk: low\n    colour: red", `has no key "colour"`},
		{"like: [reading, asks]", "like: [reading, asks]\n    like: asks", "like"},
		{"  asks:\n    risk: high\n    input_schema: {required: [name]}\n", "  asks: [x]\n", "a fragment must be a mapping"},
		{"DEMO_X: b}", "DEMO_X: b, DEMO_X: c}", "DEMO_X"},
	} {
		text := strings.Replace(fragmentPack, c.old, c.new, 1)
		if text == fragmentPack {
			t.Fatalf("%q is not in the pack", c.old)
		}
		if _, err := Parse("demo.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q instead of %q: %v, want %q", c.new, c.old, err, c.want)
		}
	}
}
