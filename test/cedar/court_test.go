package cedar

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/policy"
)

// court compares the results of the engine and of the reference for a trial.
type court struct {
	oracle   *oracle
	actions  []policy.Action
	schema   string
	empty    *policy.Engine    // built-in rules only
	builtin  map[string]string // the built-in rules, which are added to the rules of a trial
	known    map[string]int    // class → number of findings
	stricter map[string]int    // refused here but accepted by the reference's validator
	count    tally
}

func newCourt(t *testing.T, o *oracle) *court {
	c := &court{oracle: o, builtin: map[string]string{}, known: map[string]int{}, stricter: map[string]int{}}
	for _, a := range capabilities() {
		c.actions = append(c.actions, a.Action)
	}
	schema, err := policy.Schema(c.actions)
	if err != nil {
		t.Fatal(err)
	}
	c.schema = string(schema)
	if c.empty, err = c.load(""); err != nil {
		t.Fatal(err)
	}
	for id, name := range map[string]string{"opaque-input": "opaque.cedar", "changed-tool": "changed.cedar"} {
		text, err := os.ReadFile("../../internal/policy/" + name)
		if err != nil {
			t.Fatal(err)
		}
		c.builtin[id] = string(text)
	}
	return c
}

// hear gives trials to both sides and returns their differences.
func (c *court) hear(trials []*trial) (found []finding, err error) {
	types := job{Op: "validate", Schema: c.schema, Rules: map[string]string{}}
	var jobs []job
	sides := make([]side, len(trials))
	for i, t := range trials {
		sides[i] = c.side(t)
		jobs = append(jobs, c.jobs(t, sides[i])...)
		for _, r := range t.rules {
			types.Rules[number(i, r)] = r.String()
		}
	}
	answers, err := c.oracle.ask(append(jobs, types)...)
	if err != nil {
		return nil, err
	}
	hearings := make([]*hearing, len(trials))
	var more []job
	for i, t := range trials {
		h := &hearing{court: c, trial: t, side: sides[i], now: answers[2*i+1].Answers}
		h.types(i, answers[len(jobs)])
		h.raw(answers[2*i])
		h.silent(answers[2*i+1])
		more = append(more, c.whole(sides[i], h.granted()...))
		hearings[i] = h
	}
	if answers, err = c.oracle.ask(more...); err != nil {
		return nil, err
	}
	for i, h := range hearings {
		h.then = answers[i].Answers
		h.decisions()
		found = append(found, h.found...)
	}
	return found, nil
}

// number returns the name of a rule among those of all trials.
func number(trial int, r rule) string { return fmt.Sprintf("t%d.%s", trial, r.id) }

// hearing is one trial with its findings.
type hearing struct {
	*court
	trial *trial
	side  side
	now   []verdict // over all rules, with the grants of the request
	then  []verdict // where asking rules denied: with their grants too, in order
	found []finding

	unparsed bool // the reference cannot parse a rule and therefore does not answer
}

func (h *hearing) differ(class, format string, a ...any) {
	h.found = append(h.found, finding{class, fmt.Sprintf(format, a...), h.trial})
}

// types compares which rules parse and which are valid. A rule that the reference refuses must not load here. The
// engine may refuse more, which is counted.
func (h *hearing) types(trial int, ref answer) {
	if ref.Failure != "" {
		h.differ("validate: "+generic(ref.Failure), "%s", ref.Failure)
		return
	}
	for _, r := range h.trial.rules {
		h.count.rules++
		parses := h.side.parses[r.id]
		wrong, unparsed := ref.Parse[number(trial, r)]
		refused := h.side.refused[r.id]
		h.unparsed = h.unparsed || unparsed
		errs := ref.Errors[number(trial, r)]
		switch {
		case unparsed && refused == nil:
			h.differ("loads, does not parse: "+generic(wrong), "%s: the reference cannot parse it: %s", r.id, wrong)
		case unparsed && parses:
			h.count.looser++
		case !unparsed && !parses:
			h.stricter["parse: "+generic(refused.Error())]++
		case refused == nil && len(errs) > 0:
			h.differ("loads, is not valid: "+generic(errs[0]), "%s: the reference refuses its types: %s", r.id, strings.Join(errs, "; "))
		case refused == nil:
			h.count.loaded++
		case !unparsed && len(errs) == 0:
			h.stricter[generic(refused.Error())]++
		}
	}
}

// silent reports a missing answer. Rules that the reference cannot parse were reported before.
func (h *hearing) silent(ref answer) {
	if ref.Failure != "" && !h.unparsed {
		h.differ("no answer: "+generic(ref.Failure), "%s", ref.Failure)
	}
}

// raw compares the decisions of cedar-go over every rule that parses, whether or not its types are valid.
func (h *hearing) raw(ref answer) {
	h.silent(ref)
	for i, q := range h.trial.asked[:min(len(ref.Answers), len(h.trial.asked))] {
		h.count.raw++
		got, want := q.raw(h.side.set), ref.Answers[i]
		if len(want.Errors) > 0 {
			h.count.errors++
		}
		switch {
		case want.Failure != "":
			h.differ("request: "+generic(want.Failure), "request %d: %s", i, want.Failure)
		case got.Decision != want.Decision || !same(got.Reasons, want.Reasons) || !same(got.Errors, want.Errors):
			h.differ("raw", "request %d: cedar-go says %+v, the reference %+v", i, got, want)
		}
	}
}

// granted returns the questions that asking rules denied, with the grants of these rules.
func (h *hearing) granted() (out []question) {
	for i, v := range h.now {
		var grants []any
		for _, id := range h.asking(v) {
			grants = append(grants, id)
		}
		if grants != nil {
			out = append(out, h.trial.asked[i].with(grants))
		}
	}
	return out
}

// asking returns the rules that deny and can be lifted by a grant.
func (h *hearing) asking(v verdict) (asks []string) {
	if v.Decision == "allow" || len(v.Errors) > 0 {
		return nil
	}
	for _, id := range v.Reasons {
		if _, ours := h.builtin[id]; ours || h.some([]string{id}, func(r rule) bool { return r.asks }) {
			asks = append(asks, id)
		}
	}
	return asks
}

// decisions compares the decisions of the engine with those that follow from the reference's answers according to the
// documentation of package policy.
func (h *hearing) decisions() {
	for i, v := range h.now {
		r := h.trial.requests[i]
		effect, rules := h.meant(r, v)
		d := h.side.engine.Decide(r)
		var got []string
		for _, r := range d.Rules {
			got = append(got, string(r.ID))
		}
		h.count.outcomes[effect]++
		if d.Effect != effect || !same(got, rules) {
			h.differ(fmt.Sprintf("decide: %v for %v", d.Effect, effect), "request %d: the engine says %v %v (%s), the reference's answers mean %v %v",
				i, d.Effect, got, d.Reason, effect, rules)
		}
	}
}

// meant returns the expected effect and its rules.
func (h *hearing) meant(r bailey.Request, now verdict) (bailey.Effect, []string) {
	asks := h.asking(now)
	if len(asks) == 0 {
		return h.pass(r, now)
	}
	then := h.then[0]
	h.then = h.then[1:]
	effect, rules := h.pass(r, then)
	if effect == bailey.Allow {
		return bailey.Ask, asks
	}
	return effect, rules
}

// pass returns the effect of a single answer.
func (h *hearing) pass(r bailey.Request, v verdict) (bailey.Effect, []string) {
	switch {
	case len(v.Errors) > 0:
		return bailey.Deny, v.Errors
	case v.Decision != "allow":
		return bailey.Deny, v.Reasons
	case r.Capability == "disk.wipe" && !h.some(v.Reasons, func(r rule) bool { return strings.Contains(r.scope, `Action::"disk.wipe"`) }):
		return bailey.Deny, nil
	case len(r.Restores) > 0 && !h.some(v.Reasons, func(r rule) bool { return strings.Contains(r.String(), "context.restores") }):
		return bailey.Deny, nil
	case len(r.Waivers) > 0 && !h.some(v.Reasons, func(r rule) bool { return strings.Contains(r.String(), "context.waivers") }):
		return bailey.Deny, nil
	case len(r.Egress) > 0 && !h.some(v.Reasons, func(r rule) bool { return strings.Contains(r.String(), "context.egress") }):
		return bailey.Deny, nil
	}
	return bailey.Allow, v.Reasons
}

func (h *hearing) some(ids []string, is func(rule) bool) bool {
	return slices.ContainsFunc(h.trial.rules, func(r rule) bool { return slices.Contains(ids, r.id) && is(r) })
}
