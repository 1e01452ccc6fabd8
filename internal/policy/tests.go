package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"bailey"
)

// Test is one rule test: a call and its expected result.
type Test struct {
	Name    string
	Source  string         // file:line
	Request bailey.Request // Input as written
	Reaches bool           // Request.Egress is given; otherwise it follows from the manifest
	Waives  bool           // Request.Waivers is given; otherwise it follows from the manifest
	Writes  *bool          // nil: follows from the manifest
	Expect  bailey.Effect
	Rules   []bailey.RuleID // exactly the rules that decide, in any order; nil if not given
}

// Defaults of a test. The date is fixed (a Wednesday), so that the result of a test does not change over time.
const (
	testAgent = "local"
	testDir   = "/workspace"
	testCage  = "full"
)

func testTime() time.Time { return time.Date(2026, time.January, 7, 12, 0, 0, 0, time.UTC) }

// ParseTests parses a file of rule tests; the package comment describes the format. The error is Invalid and names
// file, line and column.
func ParseTests(src Source) ([]Test, error) {
	s := yamlFile{src.Name}
	body, err := s.parseDocument(src.Text)
	if err != nil {
		return nil, err
	}
	var tests []Test
	if body != nil {
		err = s.parseMapping(body, "a file of tests", keyParsers{"tests": func(n ast.Node) error {
			tests, err = s.parseTestList(n)
			return err
		}})
	}
	if err == nil && len(tests) == 0 {
		err = s.errorAt(nil, "holds no tests: it wants a list under `tests`")
	}
	if err != nil {
		return nil, err
	}
	return tests, nil
}

func (s yamlFile) parseTestList(n ast.Node) ([]Test, error) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		return nil, s.errorAt(n.GetToken(), "tests wants a list, each entry behind a dash")
	}
	var tests []Test
	for _, item := range seq.Values {
		t, err := s.parseTest(item)
		if err != nil {
			return nil, err
		}
		tests = append(tests, t)
	}
	return tests, nil
}

// parseTest parses one test. Missing keys have the defaults in the package comment.
func (s yamlFile) parseTest(n ast.Node) (Test, error) {
	t := Test{Source: s.name, Request: bailey.Request{
		Principal: bailey.Principal{Agent: testAgent}, Session: bailey.Session{ID: "s-test"},
		Target: bailey.Target{Kind: local}, Dir: testDir, Cage: testCage, Time: testTime(), Input: map[string]any{},
	}}
	r := &t.Request
	expected := false
	err := s.parseMapping(n, "a test", keyParsers{
		"name": textField(s, &t.Name), "call": textField(s, &r.Capability),
		"input": func(n ast.Node) (err error) { r.Input, err = s.parseObject(n); return err },
		"agent": textField(s, &r.Principal.Agent), "person": textField(s, &r.Principal.Person),
		"roles": textListField(s, &r.Principal.Roles), "organisation": textField(s, &r.Principal.Organisation),
		"target": s.targetField(&r.Target), "at": s.timeField(&r.Time),
		"cage": textField(s, &r.Cage), "absent": textListField(s, &r.Absent), "changed": s.boolField(&r.Changed),
		"dir": textField(s, &r.Dir), "paths": s.pathsField(&r.Paths),
		"writes":     func(n ast.Node) error { t.Writes = new(bool); return s.boolField(t.Writes)(n) },
		"restores":   textListField(s, &r.Restores),
		"egress":     func(n ast.Node) error { t.Reaches = true; return textListField(s, &r.Egress)(n) },
		"waivers":    func(n ast.Node) error { t.Waives = true; return textListField(s, &r.Waivers)(n) },
		"unattended": s.boolField(&r.Session.Unattended), "environment": textField(s, &r.Environ),
		"profile":   textField(s, &r.Profile),
		"approvals": textListField(s, &r.Approvals), "rules": textListField(s, &t.Rules),
		"expect": func(n ast.Node) error { expected = true; return s.effectField(&t.Expect)(n) },
	})
	if err != nil {
		return t, err
	}
	at := n.GetToken()
	if pairs, ok := pairsOf(n); ok && len(pairs) > 0 {
		at = pairs[0].Key.GetToken()
	}
	switch {
	case r.Capability == "":
		return t, s.errorAt(at, "the test wants a call, such as call: git.status")
	case !expected:
		return t, s.errorAt(at, "the test wants expect: allow, ask or deny")
	case r.Principal.Agent == "":
		return t, s.errorAt(at, "agent is empty: leave it out or name one")
	}
	t.Source = fmt.Sprintf("%s:%d", s.name, at.Position.Line)
	if t.Name == "" {
		t.Name = t.callText()
	}
	return t, nil
}

func (s yamlFile) effectField(into *bailey.Effect) func(ast.Node) error {
	return func(n ast.Node) error {
		v, _ := textOf(n)
		for _, e := range []bailey.Effect{bailey.Allow, bailey.Ask, bailey.Deny} {
			if v == e.String() {
				*into = e
				return nil
			}
		}
		return s.errorAt(n.GetToken(), "expect wants allow, ask or deny")
	}
}

func (s yamlFile) targetField(into *bailey.Target) func(ast.Node) error {
	return func(n ast.Node) error {
		var id string
		if err := textField(s, &id)(n); err != nil {
			return err
		}
		t, ok := parseTarget(id)
		if !ok {
			return s.errorAt(n.GetToken(), "%q is no target: %s", clipText(id), targetForms)
		}
		*into = t
		return nil
	}
}

func (s yamlFile) pathsField(into *map[string]string) func(ast.Node) error {
	return func(n ast.Node) error {
		object, err := s.parseObject(n)
		if err != nil {
			return err
		}
		*into = map[string]string{}
		for name, v := range object {
			path, ok := v.(string)
			if !ok {
				return s.errorAt(n.GetToken(), "path %s wants text", clipText(name))
			}
			(*into)[name] = path
		}
		return nil
	}
}

// timeField parses a time: RFC 3339, whose hour counts as written, or a weekday of the test's week and a time of day.
func (s yamlFile) timeField(into *time.Time) func(ast.Node) error {
	return func(n ast.Node) error {
		text, _ := textOf(n)
		if t, err := time.Parse(time.RFC3339, text); err == nil && !t.IsZero() {
			*into = t
			return nil
		}
		day, clock, _ := strings.Cut(text, " ")
		if t, err := time.Parse("15:04", clock); err == nil && len(clock) == len("15:04") {
			for i := range 7 {
				d := testTime().AddDate(0, 0, i)
				if d.Weekday().String() == day {
					*into = time.Date(d.Year(), d.Month(), d.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
					return nil
				}
			}
		}
		return s.errorAt(n.GetToken(), `at wants a time, as in "2026-11-20T14:00:00Z" or "Saturday 23:30"`)
	}
}

// callText formats the call as text.
func (t Test) callText() string {
	words := []string{string(t.Request.Capability)}
	for _, name := range slices.Sorted(maps.Keys(t.Request.Input)) {
		v, err := json.Marshal(t.Request.Input[name])
		if err != nil {
			v = []byte("?")
		}
		words = append(words, strings.Trim(strconv.Quote(name), `"`)+"="+string(v))
	}
	return replaceHidden(clipText(strings.Join(words, " ")))
}
