package pack

import (
	"encoding/json"
	"strings"
	"testing"
)

const bindable = `name: t
version: 1.0.0
description: a tool for tests
capabilities:
  - name: put
    backend: {type: subprocess, command: "true", cwdFromInput: repo, args: ["{{ input.word }}"]}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    credentials: [{name: token, env: T_TOKEN}]
    inputSchema:
      type: object
      required: [repo, word]
      properties: {repo: {type: string, format: path}, word: {type: string}}
`

// TestBound checks that the folder of a profile is used if a call omits a path input, and for no other input. The
// capability itself must not change.
func TestBound(t *testing.T) {
	p, err := Parse("t", []byte(bindable))
	if err != nil {
		t.Fatal(err)
	}
	m := p.Capabilities[0]
	b := m.Bound(Bindings{
		Folder:     func(input string) string { return map[string]string{"repo": "/srv/app", "word": "/no"}[input] },
		Credential: func(name string) string { return "prod-" + name },
	})
	if _, err := m.Check(map[string]any{"word": "x"}, true); err == nil {
		t.Error("an unbound capability fills an input")
	}
	if in, err := b.Check(map[string]any{"word": "x"}, true); err != nil || in["repo"] != "/srv/app" {
		t.Errorf("%v, %v", in, err)
	}
	if in, err := b.Check(map[string]any{"word": "x", "repo": "/mine"}, true); err != nil || in["repo"] != "/mine" {
		t.Errorf("what the call says does not hold: %v, %v", in, err)
	}
	if _, err := b.Check(map[string]any{}, true); err == nil || !strings.Contains(err.Error(), "word") {
		t.Errorf("a word was bound: %v", err)
	}
	var schema struct{ Required []string }
	if err := json.Unmarshal(b.InputSchema(), &schema); err != nil || len(schema.Required) != 1 || schema.Required[0] != "word" {
		t.Errorf("%v, %v", schema, err)
	}
	if w := b.Wants(); w[0].Name != "prod-token" || w[0].Env != "T_TOKEN" || m.Wants()[0].Name != "token" {
		t.Errorf("%+v", w)
	}
	if b.Digest != m.Digest {
		t.Error("another digest")
	}
}
