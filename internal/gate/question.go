package gate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bailey"
	"bailey/pack"
)

// question is all that will run, each value beside what may be read of it: an answer binds that and nothing else.
func (c *course) question() bailey.Question {
	cage := c.cage()
	q := bailey.Question{
		ID: bailey.NewApprovalID(), Receipt: c.receipt, Principal: c.call.Principal, Session: c.cameFrom(),
		Call: c.manifest.ID, Manifest: c.manifest.Digest, Resource: c.request().Target, Dir: c.shown(c.job.Dir),
		Impact: c.impact(),
		Binary: c.shown(cage.Binary), BinaryDigest: cage.BinaryDigest, Cage: cage.Kind, Plan: c.shown(cage.PlanDigest),
		EnvNames: names(c.job.Env), Contents: c.contents(), Files: c.files, Preview: c.preview, Rules: c.decision.Asks, Leases: c.scopes,
		Patience: c.call.Patience, Asked: c.call.Asked, Heard: c.heard,
	}
	q.Egress = c.reaches(func(e bailey.Endpoint) string { return c.hide(e.Words()) })
	c.preview = bailey.Preview{}                    // a call that waits holds no more than it needs
	if cage.Plan == "" && c.run.Cage().Plan != "" { // whoever could guess the rest of the text could find the secret in it by its digest
		q.Plan.Text = "withheld"
	}
	if ch, ok := c.run.(*chain); ok {
		q.Plan = bailey.Shown{Value: bailey.NewSecret(ch.bound())}
	}
	for _, arg := range append([]string{c.job.Command}, c.argv...) {
		q.Argv = append(q.Argv, c.shown(arg))
	}
	for _, name := range slices.Sorted(maps.Keys(c.input)) {
		text := plainJSON(c.Redactor.Value(c.call.Session.ID, c.input[name]))
		if _, read := c.manifest.Stdin(c.input); read && name == pack.StdinInput { // it may be longer than anybody reads
			text = fitting(text)
		}
		q.Inputs = append(q.Inputs, bailey.Input{Name: name, Shown: bailey.Shown{Text: text, Value: bailey.NewSecret(plainJSON(c.input[name]))}})
	}
	for _, w := range c.manifest.Wants() {
		q.EnvNames = append(q.EnvNames, w.Env)
	}
	return q
}

// impact is in words what the call does to the world, and before that whether anything holds it to its class.
func (c *course) impact() string {
	words := fmt.Sprintf("%s, %s", c.manifest.SideEffect, c.manifest.Reversibility)
	if c.run.Cage().Kind == bailey.Uncaged {
		return "runs without a cage, " + words
	}
	return words
}

// cameFrom is the session that the same call can come back in.
func (c *course) cameFrom() bailey.SessionID {
	if c.call.Session.Single {
		return ""
	}
	return c.call.Session.ID
}

// plainJSON is a value on one line, as a person writes it.
func plainJSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // what was checked came from JSON
		return "?"
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (c *course) shown(s string) bailey.Shown {
	return bailey.Shown{Text: c.hide(s), Value: bailey.NewSecret(s)}
}

// stillAsked wants each rule that asks by now to be one that was granted, as it read then: a grant enters policy under
// the rule's id, which another rule may have by now. It returns the digest of the policy that it asked.
func (c *course) stillAsked() (policy string, err error) {
	if len(c.granted) == 0 {
		return "", nil
	}
	r := c.request()
	r.Approvals = nil
	d := c.Policy.Decide(r)
	if d.Effect == bailey.Ask {
		for _, now := range d.Asks {
			if slices.Contains(c.granted, now.ID) && !slices.ContainsFunc(c.decision.Asks, now.Same) {
				c.decision = bailey.Decision{Rules: d.Rules, Policy: d.Policy, Reason: d.Reason}
				return "", &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("rule %s was rewritten while a person was asked", now.ID),
					Hint: "call again, so that a person answers the rule of now"}
			}
		}
	}
	return d.Policy, nil
}
