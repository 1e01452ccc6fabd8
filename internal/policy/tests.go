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
		s.AddFault(nil, "holds no tests: it wants a list under `tests`")
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
		"unattended": s.BoolField("", &r.Session.Unattended), "environment": textField(s, &r.Environ),
		"profile":   textField(s, &r.Profile),
		"approvals": textListField(s, &r.Approvals), "rules": textListField(s, &t.Rules),
		"expect": s.effectField(&t.Expect),
	})
	t.Reaches, t.Waives = seen["egress"], seen["waivers"]
	at := strictyaml.FirstKey(n)
	switch {
	case r.Capability == "":
		s.AddFault(at, "the test wants a call, such as call: git.status")
	case !seen["expect"]:
		s.AddFault(at, "the test wants expect: allow, ask or deny")
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
		s.AddFault(n, "expect wants allow, ask or deny")
	}
}

func (s sheet) targetField(into *bailey.Target) func(ast.Node) {
	return func(n ast.Node) {
		id, ok := s.ReadText(n, "")
		if !ok {
			return
		}
		if *into, ok = parseTarget(id); !ok {
			s.AddFault(n, "%q is no target: %s", strictyaml.Clip(id), targetForms)
		}
	}
}

func (s sheet) pathsField(into *map[string]string) func(ast.Node) {
	return func(n ast.Node) {
		*into = map[string]string{}
		for name, v := range s.Object(n, "") {
			path, ok := v.(string)
			if !ok {
				s.AddFault(n, "path %s wants text", strictyaml.Clip(name))
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
		s.AddFault(n, `at wants a time, as in "2026-11-20T14:00:00Z" or "Saturday 23:30"`)
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
	return replaceHidden(strictyaml.Clip(strings.Join(words, " ")))
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
