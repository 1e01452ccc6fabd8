package policy

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"

	"bailey"
)

// Cause is the reason for a decision.
type Cause uint8

const (
	Unknown    Cause = iota // no such action
	Unfit                   // the request cannot be judged
	Broken                  // a rule could not be evaluated
	Unallowed               // no permit holds
	Forbidden               // a forbid holds that no grant lifts
	Unnamed                 // irreversible, and no permit that holds names the action
	Unreleased              // secrets would be restored, and no permit that holds reads context.restores
	Unreached               // the network would be reachable, and no permit that holds reads context.egress
	Unwaived                // the cage would be weaker, and no permit that holds reads context.waivers
	Asked
	Allowed
)

// Decide decides one request. It is pure: the same engine and request give the same decision.
func (e *Engine) Decide(r bailey.Request) bailey.Decision {
	d := e.decideWith(&r, e.contextReads(r.Capability)).Decision
	d.Policy = e.digest
	return d
}

func (e *Engine) decideWith(r *bailey.Request, reads []cedar.String) Verdict {
	s := e.slices[r.Capability]
	if s == nil {
		return Verdict{Decision: bailey.Decision{
			Reason: fmt.Sprintf("there is no action %q", r.Capability),
			Hint:   "run `bailey capabilities list` to show the actions",
		}}
	}
	w, err := newView(s.act, r, reads)
	if err != nil {
		return Verdict{Cause: Unfit, Decision: bailey.Decision{
			Reason: fmt.Sprintf("policy cannot decide this call of %s: %v", s.act.ID, err),
			Hint:   fmt.Sprintf("run `bailey capabilities show %s` to show its inputs", s.act.ID),
		}}
	}
	v := e.authorizeOrAsk(e.sliceRules(s), w, r.Approvals)
	v.Request = w
	return v
}

// contextReads returns the attributes of context that the rules of a slice read.
func (e *Engine) contextReads(id bailey.CapabilityID) []cedar.String {
	if s := e.slices[id]; s != nil {
		return s.reads
	}
	return nil
}

// ruleIterator is a set of rules in the form that Cedar expects.
type ruleIterator iter.Seq2[cedar.PolicyID, *cedar.Policy]

func (a ruleIterator) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return iter.Seq2[cedar.PolicyID, *cedar.Policy](a)
}

// sliceRules returns the rules of a slice.
func (e *Engine) sliceRules(s *ruleSlice) cedar.PolicyIterator {
	return ruleIterator(func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, list := range [...][]*LoadedRule{s.own, e.common} {
			for _, r := range list {
				if !yield(cedar.PolicyID(r.ID), r.Policy) {
					return
				}
			}
		}
	})
}

// authorizeOrAsk decides with the existing grants. If asking rules refuse the call, it decides again with their grants
// added. No other grants are added: no person would be asked for them, and a rule sees only its own grant.
func (e *Engine) authorizeOrAsk(rules cedar.PolicyIterator, w *CedarRequest, grants []bailey.RuleID) Verdict {
	first := e.authorizeOnce(rules, w)
	var asks []bailey.Rule
	ids := slices.Clone(grants)
	if first.Cause == Forbidden {
		for _, r := range first.Rules {
			if e.rules[r.ID].Asks {
				asks = append(asks, r)
				ids = append(ids, r.ID)
			}
		}
	}
	if len(asks) == 0 {
		return first
	}
	w.setGrants(ids)
	second := e.authorizeOnce(rules, w)
	if second.Cause != Allowed {
		return second
	}
	return Verdict{Cause: Asked, Decision: bailey.Decision{
		Effect: bailey.Ask, Rules: asks, Asks: asks,
		Reason: joinReasons(asks), Hint: "a person must approve: " + describeApprovals(asks),
	}}
}

// authorizeOnce evaluates the rules once. If any rule fails, it denies. Cedar itself would skip that rule, and a
// skipped forbid would not forbid.
func (e *Engine) authorizeOnce(rules cedar.PolicyIterator, w *CedarRequest) Verdict {
	ok, diag := cedar.Authorize(rules, w, w.Request)
	id := w.act.ID
	if len(diag.Errors) > 0 {
		return e.brokenRuleVerdict(diag.Errors, explainHint(id))
	}
	held := e.decidingRules(diag.Reasons)
	switch {
	case ok == cedar.Allow && w.act.isIrreversible() && !e.isActionNamed(held, w.act):
		return Verdict{Cause: Unnamed, Decision: bailey.Decision{
			Reason: fmt.Sprintf("%s is irreversible, and no rule that allows it names it", id),
			Hint:   allowHint(w),
		}}
	case ok == cedar.Allow && len(w.restores) > 0 && !e.isAttributeRead(held, "restores"):
		what := strings.Join(w.restores, ", ")
		return Verdict{Cause: Unreleased, Decision: bailey.Decision{
			Reason: fmt.Sprintf("%s would receive restored secrets (%s), but no rule that allows it checks context.restores", id, what),
			Hint:   "leave the token out, or request a rule such as " + PermitHint(w.restores, "restores"),
		}}
	case ok == cedar.Allow && len(w.egress) > 0 && !e.isAttributeRead(held, "egress"):
		return Verdict{Cause: Unreached, Decision: bailey.Decision{
			Reason: fmt.Sprintf("%s would reach %s, but no rule that allows it checks context.egress", id,
				joinFew(w.egress)),
			Hint: allowHint(w),
		}}
	case ok == cedar.Allow && len(w.waivers) > 0 && !e.isAttributeRead(held, "waivers"):
		return Verdict{Cause: Unwaived, Decision: bailey.Decision{
			Reason: fmt.Sprintf("%s %s, but no rule that allows it checks context.waivers", id,
				describeWaivers(w.waivers)),
			Hint: allowHint(w),
		}}
	case ok == cedar.Allow:
		return Verdict{Cause: Allowed,
			Decision: bailey.Decision{Effect: bailey.Allow, Rules: held, Reason: joinReasons(held)}}
	case len(held) == 0 && len(w.waivers) > 0: // a permit that does not read context.waivers would not suffice
		return Verdict{Cause: Unallowed, Decision: bailey.Decision{
			Reason: fmt.Sprintf("no rule allows %s, which %s", id, describeWaivers(w.waivers)),
			Hint:   allowHint(w),
		}}
	case len(held) == 0:
		return Verdict{Cause: Unallowed,
			Decision: bailey.Decision{Reason: fmt.Sprintf("no rule allows %s", id), Hint: allowHint(w)}}
	}
	return Verdict{Cause: Forbidden,
		Decision: bailey.Decision{Rules: held, Reason: joinReasons(held), Hint: explainHint(id)}}
}

// isolation is the waiver of a tool that runs without a cage.
const isolation = "isolation"

// describeWaivers describes the effect of waivers.
func describeWaivers(waivers []string) string {
	what := "would run in a weaker jail than usual"
	if slices.Contains(waivers, isolation) {
		what = "would run without a jail"
	}
	return fmt.Sprintf("%s (%s)", what, joinFew(waivers))
}

// allowHint names the command with which an operator allows a call like this one.
func allowHint(w *CedarRequest) string {
	if w.act.ID == Wrap || len(w.egress) > 4 {
		return explainHint(w.act.ID)
	}
	words := "bailey allow " + string(w.act.ID)
	for _, host := range w.egress {
		if strings.ContainsFunc(host, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("'\"`\\$;&|<>(){}!#~?", c) }) {
			return explainHint(w.act.ID) // a person copies the command into a shell
		}
		if strings.ContainsAny(host, "[]*") { // a shell would take these for a pattern
			host = "'" + host + "'"
		}
		words += " --egress " + host
	}
	return "to allow it, an operator runs `" + words + "`; " + explainHint(w.act.ID)
}

func explainHint(id bailey.CapabilityID) string {
	return fmt.Sprintf("run `bailey policy explain %s -i …`, or of the receipt, to show the rules", id)
}

func (e *Engine) brokenRuleVerdict(errs []cedar.DiagnosticError, hint string) Verdict {
	var v Verdict
	for _, d := range errs {
		v.Rules = append(v.Rules, e.rules[bailey.RuleID(d.PolicyID)].Rule)
	}
	v.Cause, v.Hint = Broken, hint
	// The agent sees the reason, and Cedar's message may contain text of the rule.
	v.Reason = fmt.Sprintf("rule %s cannot be evaluated for this call", v.Rules[0].ID)
	v.Fault = errs[0].Message
	return v
}

// decidingRules returns the rules that decided according to Cedar, in policy order.
func (e *Engine) decidingRules(reasons []cedar.DiagnosticReason) []bailey.Rule {
	if len(reasons) == 0 {
		return nil
	}
	out := make([]bailey.Rule, len(reasons))
	for i, r := range reasons {
		out[i] = e.rules[bailey.RuleID(r.PolicyID)].Rule
	}
	return out
}

func (e *Engine) isActionNamed(held []bailey.Rule, a *action) bool {
	return slices.ContainsFunc(held, func(r bailey.Rule) bool { return e.rules[r.ID].namesAction(a.uid) })
}

// isAttributeRead reports whether one of the permits reads an attribute (restores, egress or waivers). A permit written
// without regard to secrets or the network must not release secrets or allow egress.
func (e *Engine) isAttributeRead(held []bailey.Rule, at cedar.String) bool {
	return slices.ContainsFunc(held, func(r bailey.Rule) bool { return e.rules[r.ID].looksAt(at) })
}

// joinFew lists at most four words and the number of the others.
func joinFew(words []string) string {
	const most = 4
	if len(words) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
	}
	return strings.Join(words, ", ")
}

// PermitHint returns a permit condition under which an attribute of context may hold only these words.
func PermitHint(words []string, attribute string) string {
	var quoted []string
	for _, w := range words {
		quoted = append(quoted, strconv.Quote(w))
	}
	return "permit … when { [" + strings.Join(quoted, ", ") + "].containsAll(context." + attribute + ") }"
}

// joinReasons joins the reasons of the rules. For a rule without a reason it names the rule.
func joinReasons(rules []bailey.Rule) string {
	var words []string
	for _, r := range rules {
		w := r.Reason
		if w == "" {
			w = "allowed by " + string(r.ID)
		}
		words = append(words, w)
	}
	return strings.Join(words, "; ")
}

// describeApprovals describes which approvals are needed. For several rules, it describes the single answer that
// satisfies all of them.
func describeApprovals(asks []bailey.Rule) string {
	var ids []string
	for _, r := range asks {
		ids = append(ids, string(r.ID))
	}
	w := bailey.Combine(asks)
	words := fmt.Sprintf("%s requires %d", ids[0], w.Count)
	if len(ids) > 1 {
		words = fmt.Sprintf("%s require %d together", strings.Join(ids, ", "), w.Count)
	}
	switch len(w.Roles) {
	case 0:
	case 1:
		words += " with role " + w.Roles[0]
	default:
		words += " with all of the roles " + strings.Join(w.Roles, ", ")
	}
	return words + DescribeProof(w.Level) + ", valid for " + FormatDuration(w.TTL)
}

// DescribeProof describes how an approver must prove identity, or returns "" if any answer suffices.
func DescribeProof(l bailey.Level) string {
	switch l {
	case "", bailey.Local:
		return ""
	case bailey.SignedSoftware:
		return ", with a signature"
	case bailey.SignedTouch:
		return ", with a touched key"
	}
	return ", with proof of the level " + string(l)
}

// FormatDuration formats a duration without trailing zeros: 10m, not 10m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
