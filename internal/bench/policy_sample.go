package bench

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"

	"bailey"
	"bailey/internal/policy"
)

// policySample is a generated policy for measurements, with requests and their expected results.
type policySample struct {
	policy.Config
	Rules   int
	Allowed bailey.Request // allowed by rule allowedBy
	Refused bailey.Request // allowed by no permit

	allowedBy bailey.RuleID
}

// perAction is the number of rules per action of a sample.
const perAction = 10

// newPolicySample generates a policy with the given number of rules, ten per action. Half of them are for one agent each,
// half for one kind of call. Of each hundred rules, unscoped are forbids without an action instead, which are part of
// every slice.
func newPolicySample(rules, unscoped int) policySample {
	const schema = `{"type":"object","required":["repo"],"properties":{"repo":{"type":"string"},"ref":{"type":"string"}}}`
	s := policySample{Rules: rules, allowedBy: "a0-9"}
	var text strings.Builder
	for i := range rules {
		n, k := i/perAction, i%perAction
		if k == 0 {
			s.Actions = append(s.Actions,
				policy.Action{ID: bailey.CapabilityID(fmt.Sprintf("p.a%d", n)), Pack: "p", SideEffect: "mutating",
					Risk: "medium", Reversibility: "reversible", InputSchema: json.RawMessage(schema)})
		}
		switch {
		case i*unscoped%100 < unscoped && k == 0:
			fmt.Fprintf(&text,
				"@id(\"a%d-%d\") @reason(\"closed\") forbid (principal, action, resource) when { context.dir == \"/closed/%d\" };\n", n, k, i)
		case k == perAction-1:
			fmt.Fprintf(&text,
				"@id(\"a%d-%d\") permit (principal, action == Action::\"p.a%d\", resource) when { context.input.repo == \".\" && context.cage == \"full\" };\n", n, k, n)
		case k%2 == 0:
			fmt.Fprintf(&text,
				"@id(\"a%d-%d\") permit (principal == Agent::\"agent-%d\", action == Action::\"p.a%d\", resource) when { context.cage == \"full\" };\n", n, k, k, n)
		default:
			fmt.Fprintf(&text,
				"@id(\"a%d-%d\") permit (principal, action == Action::\"p.a%d\", resource) when { context.input has ref && context.input.ref like \"release-%d*\" };\n", n, k, n, k)
		}
	}
	s.Sources = []policy.Source{{Name: "sample.cedar", Text: []byte(text.String())}}
	s.Allowed = bailey.Request{
		Capability: "p.a0", Input: map[string]any{"repo": ".", "ref": "main"},
		Principal: bailey.Principal{Agent: "local", Person: "ada", Roles: []string{"dev"}},
		Session:   bailey.Session{ID: "s-sample"},
		Target:    bailey.Target{Kind: "local"}, Dir: "/work", Cage: "full", Profile: "default",
		Paths: map[string]string{"repo": "/work"},
		Time:  time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC),
	}
	s.Refused = s.Allowed
	s.Refused.Cage = "landlock"
	return s
}

// checkDecisions returns an error if decide does not decide the sample's requests as its rules require.
func (s policySample) checkDecisions(decide func(bailey.Request) bailey.Decision) error {
	yes, no := decide(s.Allowed), decide(s.Refused)
	if yes.Effect == bailey.Allow && len(yes.Rules) == 1 && yes.Rules[0].ID == s.allowedBy &&
		no.Effect == bailey.Deny && len(no.Rules) == 0 {
		return nil
	}
	return bailey.Internal.Errorf("",
		"the sample of %d rules is decided wrongly: %q, and %q", s.Rules, yes.Reason, no.Reason)
}

// parseOnly only parses the rules with the library and checks nothing. It is the lower bound for the time of a load.
func (s policySample) parseOnly() error {
	_, err := cedar.NewPolicyListFromBytes(s.Sources[0].Name, s.Sources[0].Text)
	return err
}

// decideBare returns a function that passes the rules that cover a request to the library. The request is built once,
// before.
func decideBare(e *policy.Engine, r bailey.Request) (func() bool, error) {
	v := e.Examine(r)
	if v.Request == nil {
		return nil, bailey.NotFound.New(v.Reason, v.Hint)
	}
	rules := cedar.NewPolicySet()
	for _, r := range e.RulesFor(r.Capability) {
		rules.Add(cedar.PolicyID(r.ID), r.Policy)
	}
	return func() bool {
		ok, _ := cedar.Authorize(rules, v.Request, v.Request.Request)
		return ok == cedar.Allow
	}, nil
}
