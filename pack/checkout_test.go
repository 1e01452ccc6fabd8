package pack

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"bailey"
)

type fakeCheckout struct{ owner, name, branch string }

func (f fakeCheckout) Repository(chosen bool) (owner, name string, err error) {
	if f.name == "" {
		return "", "", errors.New("no remote")
	}
	if !chosen {
		return f.owner, "plain", nil
	}
	return f.owner, f.name, nil
}

func (f fakeCheckout) Branch() (string, error) {
	if f.branch == "" {
		return "", errors.New("no branch")
	}
	return f.branch, nil
}

func (f fakeCheckout) PullRequest() (string, error) {
	branch, err := f.Branch()
	return f.owner + ":" + branch, err
}

const checkoutPack = `
name: t
version: 1.0.0
description: a tool for tests
capabilities:
  - name: view
    backend: {type: subprocess, command: gh, args: ["--repo={{ input.repo }}", --, "{{ input.number }}", "{{ input.head }}"]}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    checkout: {repository: repo, branch: head, unless: number, without: [org], within: [endpoint, fields]}
    inputSchema:
      type: object
      properties:
        repo: {type: string, pattern: '^[a-z]+/[a-z]+$'}
        head: {type: string, pattern: '^[a-z:]+$'}
        number: {type: integer}
        org: {type: string}
        endpoint: {type: string, pattern: '^[a-z/]+$'}
        fields: {type: array, items: {type: string, x-bailey: {options: '-F= -f='}}}
`

// TestFillCheckout checks which inputs come from the checkout, and that a call that names everything does not read it.
func TestFillCheckout(t *testing.T) {
	p, err := Parse("pack.yaml", []byte(checkoutPack))
	if err != nil {
		t.Fatal(err)
	}
	m := p.Capabilities[0]
	type in = map[string]any
	full := fakeCheckout{"o", "r", "topic"}
	for _, c := range []struct {
		from        fakeCheckout
		input, want in
		reads       bool
	}{
		{full, in{}, in{"repo": "o/r", "head": "o:topic"}, true},
		{full, nil, in{"repo": "o/r", "head": "o:topic"}, true},
		{full, in{"number": "5"}, in{"repo": "o/r", "number": "5"}, true},
		{full, in{"head": "x"}, in{"repo": "o/r", "head": "x"}, true},
		{full, in{"repo": "a/b"}, in{"repo": "a/b"}, false},
		{full, in{"repo": "a/b", "number": "5"}, in{"repo": "a/b", "number": "5"}, false},
		{full, in{"org": "x"}, in{"org": "x"}, false},
		{full, in{"repo": "a/b", "endpoint": "repos/{owner}/{repo}/{branch}/{x}"}, in{"repo": "a/b", "endpoint": "repos/o/plain/topic/{x}"}, true},
		{full, in{"repo": "a/b", "fields": []any{"-Fx={owner}", "-fx={owner}"}}, in{"repo": "a/b", "fields": []any{"-Fx=o", "-fx={owner}"}}, true},
		{full, in{"repo": "a/b", "fields": []any{"-fx={owner}"}}, in{"repo": "a/b", "fields": []any{"-fx={owner}"}}, false},
		{fakeCheckout{}, in{}, nil, true},
		{fakeCheckout{"o", "r", ""}, in{}, nil, true},
		{fakeCheckout{"o", "r", ""}, in{"number": "5"}, in{"repo": "o/r", "number": "5"}, true},
		{fakeCheckout{"o", "r", ""}, in{"repo": "a/b", "endpoint": "{branch}"}, nil, true},
	} {
		reads := false
		got, err := m.FillCheckout(c.input, func() (Checkout, error) { reads = true; return c.from, nil })
		if !reflect.DeepEqual(got, c.want) || (err == nil) != (c.want != nil) || reads != c.reads {
			t.Errorf("%v is %v, %v, reads %v; want %v", c.input, got, err, reads, c.want)
		}
		if err != nil && bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("%v: %v is %s", c.input, err, bailey.KindOf(err))
		}
	}
	if _, err := m.FillCheckout(in{}, func() (Checkout, error) { return nil, errors.New("not here") }); err == nil || !strings.Contains(bailey.HintOf(err), "repo") {
		t.Errorf("%v", err)
	}
	for _, wrong := range []string{"{repository: none}", "{branch: head}", "{repository: org}", "{repository: number}", "{within: [none]}", "{other: repo}"} {
		text := strings.Replace(checkoutPack, "{repository: repo, branch: head, unless: number, without: [org], within: [endpoint, fields]}", wrong, 1)
		if _, err := Parse("pack.yaml", []byte(text)); err == nil {
			t.Errorf("checkout %s is taken", wrong)
		}
	}
}
