package review

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
	cast "github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"

	"bailey"
	"bailey/internal/policy"
)

// Explanation says why a decision was made and what would change it.
type Explanation struct {
	Capability bailey.CapabilityID `json:"capability"`
	Outcome    string              `json:"outcome"` // allow, ask, deny
	Reason     string              `json:"reason"`
	Hint       string              `json:"hint,omitempty"`
	Rules      []Cited             `json:"rules"`            // the rules that decided
	Change     []string            `json:"change,omitempty"` // one sentence for each way to another outcome
	// number of rules whose action scope includes this action
	Considered int    `json:"considered,omitempty"`
	Policy     string `json:"policyDigest,omitempty"`
}

// Cited is a rule with its text.
type Cited struct {
	bailey.Rule
	Effect string `json:"effect"`         // permit, forbid
	Text   string `json:"text,omitempty"` // source text
}

// Explain decides like Decide and explains the decision.
func Explain(e *policy.Engine, r bailey.Request) Explanation {
	v := e.Examine(r)
	out := Explanation{Capability: r.Capability, Outcome: v.Effect.String(), Reason: v.Reason, Hint: v.Hint,
		Rules: []Cited{}, Considered: len(e.RulesFor(r.Capability)), Policy: e.Digest()}
	for _, r := range v.Rules {
		out.Rules = append(out.Rules, citeRule(r, e.Rule(r.ID)))
	}
	out.Change = possibleChanges(v, r, e.RulesFor(r.Capability))
	return out
}

// ForAgent returns the part of an explanation that an agent may see: the outcome, the reason, the hint, and the ids and
// reasons of the rules that decided. It must not contain the text of a rule, a file or another rule, because an agent
// could learn from them how to evade the rules.
func (x Explanation) ForAgent() Explanation {
	out := Explanation{Capability: x.Capability, Outcome: x.Outcome, Reason: x.Reason, Hint: x.Hint, Rules: []Cited{}}
	for _, r := range x.Rules {
		out.Rules = append(out.Rules, Cited{Rule: bailey.Rule{ID: r.ID, Reason: r.Reason}, Effect: r.Effect})
	}
	return out
}

// String formats the explanation for a terminal.
func (x Explanation) String() string {
	var b strings.Builder
	// quoted: the caller chose the id, and it must not contain control characters
	fmt.Fprintf(&b, "%s: %s", x.Outcome, strings.Trim(strconv.Quote(string(x.Capability)), `"`))
	if x.Reason != "" {
		fmt.Fprintf(&b, "\n%s", x.Reason)
	}
	for _, r := range x.Rules {
		fmt.Fprintf(&b, "\n\n%s %s", r.Effect, r.ID)
		if r.Source != "" {
			fmt.Fprintf(&b, " at %s\n  %s", r.Source, strings.ReplaceAll(r.Text, "\n", "\n  "))
		}
	}
	if len(x.Change) > 0 {
		fmt.Fprintf(&b, "\n\nwhat would change it\n  %s", strings.Join(x.Change, "\n  "))
	}
	if x.Policy != "" {
		fmt.Fprintf(&b, "\n\n%d rules cover this action; policy %.12s", x.Considered, x.Policy)
	}
	return b.String()
}

func citeRule(r bailey.Rule, full *policy.LoadedRule) Cited {
	c := Cited{Rule: r, Effect: "forbid", Text: full.Text}
	if full.IsPermit() {
		c.Effect = "permit"
	}
	return c
}

func possibleChanges(v policy.Verdict, r bailey.Request, rules []*policy.LoadedRule) (out []string) {
	switch v.Cause {
	case policy.Asked:
		for _, r := range v.Asks {
			who := "anyone who may approve"
			if r.Role != "" {
				who = "role " + r.Role
			}
			out = append(out, fmt.Sprintf("allowed after approval of %s: %d of %s%s, for %s", r.ID, r.Count, who, policy.DescribeProof(r.Level), policy.FormatDuration(r.TTL)))
		}
	case policy.Forbidden:
		for _, r := range v.Rules {
			out = append(out, fmt.Sprintf("forbidden while %s at %s applies", r.ID, r.Source))
		}
	case policy.Unnamed:
		out = append(out, fmt.Sprintf("a permit whose action scope is == %s, or lists it", v.Request.Action))
	case policy.Unreleased:
		out = append(out, policy.PermitHint(r.Restores, "restores"))
	case policy.Unreached:
		out = append(out, policy.PermitHint(r.Egress, "egress"))
	case policy.Unwaived:
		out = append(out, policy.PermitHint(r.Waivers, "waivers"))
	case policy.Broken:
		out = append(out, fmt.Sprintf("denied until %s at %s can be evaluated: %s", v.Rules[0].ID, v.Rules[0].Source, v.Fault))
	case policy.Unallowed:
		return missingConditions(v, rules)
	}
	return out
}

// missingConditions states for each permit that covers the action which condition fails.
func missingConditions(v policy.Verdict, rules []*policy.LoadedRule) (out []string) {
	for _, r := range rules {
		if r.IsPermit() {
			out = append(out,
				fmt.Sprintf("%s at %s would allow it, but requires %s", r.ID, r.Source, unmetCondition(v.Request, r)))
		}
	}
	if out == nil {
		out = append(out, fmt.Sprintf("a permit whose action scope includes %s", v.Request.Action))
	}
	return out
}

// unmetCondition returns the first part of a permit that does not hold, as Cedar text.
func unmetCondition(w *policy.CedarRequest, r *policy.LoadedRule) string {
	env := eval.Env{Entities: w, Principal: w.Principal, Action: w.Action, Resource: w.Resource, Context: w.Context}
	holds := func(n ast.IsNode) bool {
		v, err := eval.Eval(n, env)
		return err == nil && v == cedar.True
	}
	scope := *r.AST
	scope.Conditions = nil
	if !holds(eval.PolicyToNode(&scope).AsIsNode()) {
		return "another principal or resource"
	}
	for _, c := range r.AST.Conditions {
		if c.Condition == ast.ConditionUnless {
			if holds(c.Body) {
				return "not (" + cedarText(c.Body) + ")"
			}
			continue
		}
		for _, n := range policy.SplitConjuncts(c.Body) {
			if !holds(n) {
				return cedarText(n)
			}
		}
	}
	return "conditions that hold"
}

// cedarText formats an expression as Cedar text. It goes through a policy, because the library prints only whole
// policies.
func cedarText(n ast.IsNode) string {
	text := (*cast.Policy)(ast.Permit().When(ast.NewNode(n))).MarshalCedar()
	if i := bytes.IndexByte(text, '{'); i >= 0 {
		text = text[i+1:]
	}
	return string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(text), []byte("};"))))
}
