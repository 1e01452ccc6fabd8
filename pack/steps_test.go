package pack

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// flow returns a manifest with one workflow of the given steps.
func flow(steps string) string {
	return `name: ops
version: 1.0.0
description: workflows for tests
capabilities:
  - name: release
    description: commit and tell
    backend:
      type: workflow
      steps:
` + steps + `    risk: high
    sideEffectClass: mutating
    reversibility: reversible
    inputSchema:
      type: object
      required: [repo]
      properties:
        repo: {type: string, format: path}
        message: {type: string}
        all: {type: boolean}
        names: {type: array, items: {type: string}}
`
}

const twoSteps = `        - id: commit
          call: git.commit
          input: {repo: "{{ input.repo }}", message: "release: {{ input.message }} ({{ input.all }})", all: "{{ input.all }}", limit: 3, paths: ["{{ input.message }}", b]}
          onFailure: continue
        - {id: tell, call: system.echo, input: {message: "did {{ steps.commit.stdout }}!"}}
`

// TestSteps checks that an input keeps its type if it is a whole value, that a value is omitted if its input is
// missing, and that an input within a text is inserted as text.
func TestSteps(t *testing.T) {
	p, err := Parse("t", []byte(flow(twoSteps)))
	if err != nil {
		t.Fatal(err)
	}
	m := p.Capabilities[0]
	if m.Isolation != Workflow || m.StepCount() != 2 || m.Command != "" {
		t.Errorf("%s, %d steps", m.Isolation, m.StepCount())
	}
	in := map[string]any{"repo": "given", "message": "one", "all": true}
	s, err := m.Step(0, in, map[string]string{"repo": "/opened"}, nil)
	want := map[string]any{"repo": "/opened", "message": "release: one (true)", "all": true, "limit": json.Number("3"), "paths": []any{"one", "b"}}
	if err != nil || s.Late || !s.Continue || s.Call != "git.commit" || !reflect.DeepEqual(s.Input, want) {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := m.Step(0, map[string]any{}, nil, nil); err != nil || s.Input["message"] != "release:  ()" || s.Input["all"] != nil || len(s.Input["paths"].([]any)) != 1 {
		t.Errorf("without values: %+v, %v", s, err)
	}
	if s, err := m.Step(1, in, nil, nil); err != nil || !s.Late || s.Input != nil {
		t.Errorf("before the first ran: %+v, %v", s, err)
	}
	wrote := func(text string) func(string) (string, error) {
		return func(string) (string, error) { return text, nil }
	}
	if s, err := m.Step(1, in, nil, wrote("{{ input.repo }}\n\n")); err != nil || s.Input["message"] != "did {{ input.repo }}\n!" {
		t.Errorf("what a step wrote is taken for a template: %+v, %v", s, err)
	}
	if _, err := m.Step(1, in, nil, wrote(strings.Repeat("x", maxWrote+1))); err == nil {
		t.Error("a step takes any amount")
	}
	if _, err := m.Step(1, in, nil, func(string) (string, error) { return "", errors.New("gone") }); err == nil {
		t.Error("a step takes what is not there")
	}
}

// TestStepsRefused checks that an ambiguous or invalid workflow is refused.
func TestStepsRefused(t *testing.T) {
	one := func(input string) string { return "        - {id: one, call: git.status, input: {" + input + "}}\n" }
	for name, c := range map[string]struct{ text, want string }{
		"no steps":      {flow("        []\n"), "1 to 16 steps"},
		"many":          {flow(strings.Repeat("        - {id: a, call: git.status}\n", 17)), "1 to 16 steps"},
		"twice":         {flow(strings.Repeat("        - {id: a, call: git.status}\n", 2)), "step a is here twice"},
		"unknown key":   {flow("        - {id: a, call: git.status, if: x}\n"), `"if"`},
		"no call":       {flow("        - {id: a}\n"), "call"},
		"a bare name":   {flow("        - {id: a, call: status}\n"), "call"},
		"unknown input": {flow(one(`repo: "{{ input.rep }}"`)), "input.rep is not in the inputSchema"},
		"later step":    {flow(one(`repo: "{{ steps.two.stdout }}"`)), "step two does not come before it"},
		"own output":    {flow(one(`repo: "{{ steps.one.stdout }}"`)), "step one does not come before it"},
		"other words":   {flow(one(`repo: "{{ env.HOME }}"`)), "is not a placeholder"},
		"half a word":   {flow(one(`repo: "{{ input.repo"`)), "is not a placeholder"},
		"stderr":        {flow(one(`repo: "{{ steps.one.stderr }}"`)), "is not a placeholder"},
		"a list inside": {flow(one(`repo: "x {{ input.names }}"`)), "not a word and cannot be part of a text"},
		"an object":     {flow(one(`repo: {a: b}`)), "must be a word"},
		"nothing":       {flow(one(`repo: null`)), "must be a word"},
		"a command":     {strings.Replace(flow(twoSteps), "type: workflow", "type: workflow\n      command: git", 1), "must not have command, args"},
		"no workflow":   {strings.Replace(flow(twoSteps), "type: workflow", "type: subprocess\n      command: git", 1), "steps are for backend workflow"},
		"a secret":      {strings.Replace(flow(twoSteps), "message: {type: string}", "message: {type: string, acceptsSecret: [PASSWORD]}", 1), "cannot accept a secret"},
		"a secret deep": {strings.Replace(flow(twoSteps), "items: {type: string}", "items: {type: string, acceptsSecret: [PASSWORD]}", 1), "cannot accept a secret"},
		"egress":        {flow(twoSteps) + "    sandboxProfile: {network: {egress: [\"a.example:443\"]}}\n", "no sandboxProfile"},
		"credentials":   {flow(twoSteps) + "    credentials: [{name: a, env: A}]\n", "no credentials"},
		"a preview":     {flow(twoSteps) + "    preview: {args: [x]}\n", "no preview"},
	} {
		if _, err := Parse("t", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
