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
	"bailey/internal/strictyaml"
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
func ParseTests(src Source) (tests []Test, err error) {
	s, body := openSheet(src)
	if body != nil {
		s.Fields(body, "a file of tests", strictyaml.Fields{"tests": func(n ast.Node) {
			for _, item := range s.Items(n, "tests") {
				tests = append(tests, s.parseTest(item))
			}
		}})
	}
	if len(tests) == 0 {
		s.AddFault(nil, "has no tests: it needs a list under `tests`")
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return tests, nil
}

// parseTest parses one test. Missing keys have the defaults in the package comment.
func (s sheet) parseTest(n ast.Node) Test {
	t := Test{Request: bailey.Request{
		Principal: bailey.Principal{Agent: testAgent}, Session: bailey.Session{ID: "s-test"},
		Target: bailey.Target{Kind: local}, Dir: testDir, Cage: testCage, Time: testTime(), Input: map[string]any{},
	}}
	r := &t.Request
	seen := s.Fields(n, "a test", strictyaml.Fields{
		"name": textField(s, &t.Name), "call": textField(s, &r.Capability),
		"input": func(n ast.Node) { r.Input = s.Object(n, "") },
		"agent": textField(s, &r.Principal.Agent), "person": textField(s, &r.Principal.Person),
		"roles": textListField(s, &r.Principal.Roles), "organisation": textField(s, &r.Principal.Organisation),
		"target": s.targetField(&r.Target), "at": s.timeField(&r.Time),
		"cage": textField(s, &r.Cage), "absent": textListField(s, &r.Absent), "changed": s.BoolField("", &r.Changed),
		"dir": textField(s, &r.Dir), "paths": s.pathsField(&r.Paths),
		"writes":     func(n ast.Node) { t.Writes = new(bool); s.BoolField("", t.Writes)(n) },
		"restores":   textListField(s, &r.Restores),
		"egress":     textListField(s, &r.Egress),
		"waivers":    textListField(s, &r.Waivers),
		"labels":     textListField(s, &r.Labels),
		"commands":   textListField(s, &r.Commands),
		"unattended": s.BoolField("", &r.Session.Unattended), "environment": textField(s, &r.Environ),
		"profile":   textField(s, &r.Profile),
		"approvals": textListField(s, &r.Approvals), "rules": textListField(s, &t.Rules),
		"expect": s.effectField(&t.Expect),
	})
	t.Reaches, t.Waives = seen["egress"], seen["waivers"]
	at := strictyaml.FirstKey(n)
	switch {
	case r.Capability == "":
		s.AddFault(at, "the test needs a call, for example call: git.status")
	case !seen["expect"]:
		s.AddFault(at, "the test needs expect: allow, ask or deny")
	case r.Principal.Agent == "":
		s.AddFault(at, "agent is empty: leave it out or name one")
	}
	t.Source = fmt.Sprintf("%s:%d", s.Name, at.GetToken().Position.Line)
	if t.Name == "" {
		t.Name = t.callText()
	}
	return t
}

func (s sheet) effectField(into *bailey.Effect) func(ast.Node) {
	return func(n ast.Node) {
		v, _ := strictyaml.TextOf(n)
		for _, e := range []bailey.Effect{bailey.Allow, bailey.Ask, bailey.Deny} {
			if v == e.String() {
				*into = e
				return
			}
		}
		s.AddFault(n, "expect must be allow, ask or deny")
	}
}

func (s sheet) targetField(into *bailey.Target) func(ast.Node) {
	return func(n ast.Node) {
		id, ok := s.ReadText(n, "")
		if !ok {
			return
		}
		if *into, ok = parseTarget(id); !ok {
			s.AddFault(n, "%q is not a target: %s", strictyaml.Clip(id), targetForms)
		}
	}
}

func (s sheet) pathsField(into *map[string]string) func(ast.Node) {
	return func(n ast.Node) {
		*into = map[string]string{}
		for name, v := range s.Object(n, "") {
			path, ok := v.(string)
			if !ok {
				s.AddFault(n, "path %s must be text", strictyaml.Clip(name))
			}
			(*into)[name] = path
		}
	}
}

// timeField parses a time: RFC 3339, whose hour counts as written, or a weekday of the test's week and a time of day.
func (s sheet) timeField(into *time.Time) func(ast.Node) {
	return func(n ast.Node) {
		text, _ := strictyaml.TextOf(n)
		if t, err := time.Parse(time.RFC3339, text); err == nil && !t.IsZero() {
			*into = t
			return
		}
		day, clock, _ := strings.Cut(text, " ")
		if t, err := time.Parse("15:04", clock); err == nil && len(clock) == len("15:04") {
			for i := range 7 {
				d := testTime().AddDate(0, 0, i)
				if d.Weekday().String() == day {
					*into = time.Date(d.Year(), d.Month(), d.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
					return
				}
			}
		}
		s.AddFault(n, `at must be a time, for example "2026-11-20T14:00:00Z" or "Saturday 23:30"`)
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
	return ReplaceHidden(strictyaml.Clip(strings.Join(words, " ")))
}
