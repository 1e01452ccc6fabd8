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

// Fit checks and types an input according to the manifest of the capability. It returns whether the call would open a
// place for writing, and its egress.
type Fit func(id bailey.CapabilityID, input map[string]any) (fitted map[string]any, writes bool, egress []string,
	err error)

// Failure is a rule test that failed.
type Failure struct {
	Source        string          `json:"source"` // file:line of the test
	Name          string          `json:"name"`
	Expected      string          `json:"expected"` // allow, ask, deny
	ExpectedRules []bailey.RuleID `json:"expectedRules,omitempty"`
	Got           string          `json:"got"`    // allow, ask, deny; error if the test could not run
	Rules         []bailey.Rule   `json:"rules"`  // the rules that decided
	Reason        string          `json:"reason"` // of the decision, or why there is none
}

// String formats the failure for a terminal.
func (f Failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: expected %s", f.Source, f.Name, f.Expected)
	if f.ExpectedRules != nil {
		fmt.Fprintf(&b, " by %s", f.expectedRuleNames())
	}
	fmt.Fprintf(&b, ", got %s", f.Got)
	if f.Reason != "" {
		fmt.Fprintf(&b, "\n  %s", replaceHidden(f.Reason))
	}
	for _, r := range f.Rules {
		fmt.Fprintf(&b, "\n  by %s at %s", r.ID, r.Source)
	}
	return b.String()
}

func (f Failure) expectedRuleNames() string {
	if len(f.ExpectedRules) == 0 {
		return "no rule"
	}
	var ids []string
	for _, id := range f.ExpectedRules {
		ids = append(ids, string(id))
	}
	return strings.Join(ids, ", ")
}

// unmet is the result of a test that could not run. It never equals an expected result.
const unmet = "error"

// Test runs rule tests and returns those that fail. If fit is nil, inputs are used as written. A test that names an
// unknown action, grant or rule fails whatever it expects, because it would prove nothing.
func (e *Engine) Test(tests []Test, fit Fit) []Failure {
	var failed []Failure
	for _, t := range tests {
		f := Failure{Source: t.Source, Name: t.Name, Expected: t.Expect.String(), ExpectedRules: t.Rules,
			Rules: []bailey.Rule{}}
		d, err := e.runTest(t, fit)
		switch {
		case err != nil:
			f.Got, f.Reason = unmet, err.Error()
		case d.Effect == t.Expect && (t.Rules == nil || sameRules(t.Rules, d.Rules)):
			continue
		default:
			f.Got, f.Reason = d.Effect.String(), d.Reason
			f.Rules = append(f.Rules, d.Rules...)
		}
		failed = append(failed, f)
	}
	return failed
}

func (e *Engine) runTest(t Test, fit Fit) (bailey.Decision, error) {
	r := t.Request
	if e.slices[r.Capability] == nil {
		return bailey.Decision{}, fmt.Errorf("no action is called %q", r.Capability)
	}
	for _, id := range r.Approvals {
		if rule := e.rules[id]; rule == nil || !rule.asks {
			return bailey.Decision{}, fmt.Errorf("approvals names %q, and no asking rule has that @id", id)
		}
	}
	for _, id := range t.Rules {
		if e.rules[id] == nil {
			return bailey.Decision{}, fmt.Errorf("rules names %q, and no rule has that @id", id)
		}
	}
	if !t.Waives {
		r.Waivers = e.slices[r.Capability].act.Waivers
	}
	if fit != nil {
		var err error
		var egress []string
		if r.Input, r.Writes, egress, err = fit(r.Capability, r.Input); err != nil {
			return bailey.Decision{}, fmt.Errorf("the call is refused before any rule sees it: %w", err)
		}
		if !t.Reaches {
			r.Egress = egress
		}
	}
	if t.Writes != nil {
		r.Writes = *t.Writes
	}
	return e.Decide(r), nil
}

// sameRules reports whether two sets of rules are equal.
func sameRules(ids []bailey.RuleID, rules []bailey.Rule) bool {
	return !slices.ContainsFunc(rules, func(r bailey.Rule) bool { return !slices.Contains(ids, r.ID) }) &&
		!slices.ContainsFunc(ids, func(id bailey.RuleID) bool {
			return !slices.ContainsFunc(rules, func(r bailey.Rule) bool { return r.ID == id })
		})
}
