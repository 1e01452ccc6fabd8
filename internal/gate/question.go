package gate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bailey"
	"bailey/pack"
)

// verdictOf returns the verdict of the hooks on the call. If the same call has an open question, it returns the verdict
// from that time. A hook that gives another answer later therefore cannot replace the call that a person was asked
// about, and no hook runs twice for one call.
func (c *callState) verdictOf(ctx context.Context, view bailey.Call) (Verdict, error) {
	of := c.cacheKey(view)
	if of != "" {
		if h, ok := c.Approver.Parked(of); ok {
			if v, err := decodeVerdict(h); err == nil {
				c.heard, c.hooksAt = h, h.Receipt
				return v, nil
			}
		}
	}
	v, err := c.Hooks.Pre(ctx, view)
	if err != nil || of == "" {
		return v, err
	}
	c.heard = bailey.Heard{Of: of, Receipt: c.receipt, Effect: v.Effect, Rule: v.Rule}
	if v.Input != nil {
		if c.heard.Input, err = json.Marshal(v.Input); err != nil {
			c.heard, err = bailey.Heard{}, nil // the hooks are asked again
		}
	}
	return v, err
}

// decodeVerdict returns a verdict as it was given. It decodes the input each time, because a call may change its own copy.
func decodeVerdict(h bailey.Heard) (v Verdict, err error) {
	v = Verdict{Effect: h.Effect, Rule: h.Rule}
	if h.Input == nil {
		return v, nil
	}
	d := json.NewDecoder(bytes.NewReader(h.Input))
	d.UseNumber()
	return v, d.Decode(&v.Input)
}

// cacheKey returns a digest of everything that the hooks judge: the edition of the hooks, the principal, the session, the
// manifest, the input as it would run and the redacted input. A token has the same meaning as before only if both
// inputs are the same. matter returns "" if the call must not be matched with another one.
func (c *callState) cacheKey(view bailey.Call) string {
	edition := c.Hooks.Edition()
	if edition == "" || c.call.Within != nil { // a step of a workflow never becomes pending
		return ""
	}
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode([]any{edition, c.cameFrom(), c.call.Principal, c.call.Session.Unattended,
		c.call.Own,
		c.manifest.ID, c.manifest.Digest, c.call.Dir, c.input, view.Dir, view.Input}); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// buildQuestion returns everything that will run, each value with its redacted text. An approval binds exactly this.
func (c *callState) buildQuestion() bailey.Question {
	cage := c.receiptCage()
	q := bailey.Question{
		ID: bailey.NewApprovalID(), Receipt: c.receipt, Principal: c.call.Principal, Session: c.cameFrom(),
		Call: c.manifest.ID, Manifest: c.manifest.Digest, Resource: c.policyRequest().Target,
		Dir: c.shownValue(c.job.Dir), Bound: c.boundDirs(),
		Impact: c.impactText(),
		Binary: c.shownValue(cage.Binary), BinaryDigest: cage.BinaryDigest, Cage: cage.Kind,
		Plan:     c.shownValue(cage.PlanDigest),
		EnvNames: variableNames(c.job.Env), Contents: c.contentsBinding(), Files: c.files, Preview: c.preview,
		Rules: c.decision.Asks, Leases: c.scopes,
		Patience: c.call.Patience, Asked: c.call.Asked, Heard: c.heard,
	}
	q.Egress = c.reachableTargets(func(e bailey.Endpoint) string { return c.textForPerson(e.Words()) })
	c.preview = bailey.Preview{} // a pending call keeps no more than it needs
	// If an attacker can guess the rest of the text, the digest would reveal the secret.
	if cage.Plan == "" && c.run.Cage().Plan != "" {
		q.Plan.Text = "withheld"
	}
	if ch, ok := c.run.(*workflowRun); ok {
		q.Plan = bailey.Shown{Value: bailey.NewSecret(ch.stepsDigest())}
	}
	for _, arg := range append([]string{c.job.Command}, c.argv...) {
		q.Argv = append(q.Argv, c.shownValue(arg))
	}
	for _, name := range slices.Sorted(maps.Keys(c.input)) {
		text := plainJSON(c.Redactor.ForPerson(c.call.Session.ID, c.input[name]))
		if _, read := c.manifest.Stdin(c.input); read && name == pack.StdinInput { // it may be too long to read
			text = clipForQuestion(text)
		}
		q.Inputs = append(q.Inputs,
			bailey.Input{Name: name,
				Shown: bailey.Shown{Text: text, Value: bailey.NewSecret(plainJSON(c.input[name]))}})
	}
	for _, w := range c.wantedCredentials() {
		q.EnvNames = append(q.EnvNames, w.Env)
	}
	return q
}

// boundDirs returns the places of each git repository that is more than the directory that the call names.
func (c *callState) boundDirs() (list []bailey.BoundDir) {
	for _, top := range c.places {
		if top.Repository == nil {
			continue
		}
		for _, p := range c.places {
			if p.Input == top.Input && p.Path != p.Repository.Dir || p.Input == bailey.CommonInput(top.Input) {
				list = append(list, bailey.BoundDir{Path: c.shownValue(p.Path), Write: p.Write})
			}
		}
	}
	return list
}

// impactText describes the effect of the call. If the call runs without a cage, it says so first.
func (c *callState) impactText() string {
	words := fmt.Sprintf("%s, %s", c.manifest.SideEffect, c.manifest.Reversibility)
	if c.signing != nil {
		words += ", " + c.redactText(c.signs.Words(c.signing.Key(), c.person))
	}
	if c.run.Cage().Kind == bailey.Uncaged {
		return "runs without a jail, " + words
	}
	return words
}

// cameFrom returns the session in which the same call can be made again. It returns "" if the session ends with this
// call.
func (c *callState) cameFrom() bailey.SessionID {
	if c.call.Session.Single {
		return ""
	}
	return c.call.Session.ID
}

// plainJSON returns a value as JSON on one line, without HTML escapes.
func plainJSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // checked values came from JSON
		return "?"
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (c *callState) shownValue(s string) bailey.Shown {
	return bailey.Shown{Text: c.textForPerson(s), Value: bailey.NewSecret(s)}
}

// textForPerson redacts a text of a question. Addresses stay, because the person decides by them.
func (c *callState) textForPerson(s string) string {
	s, _ = c.Redactor.ForPerson(c.call.Session.ID, s).(string)
	return s
}

// stillAsked checks each rule that asks now and has a grant: it must be the rule that was granted, with the same
// meaning. A grant enters policy by rule ID, and another rule may have that ID by now. It returns the digest of the
// policy that it asked.
func (c *callState) stillAsked() (policy string, err error) {
	if len(c.granted) == 0 {
		return "", nil
	}
	r := c.policyRequest()
	r.Approvals = nil
	d := c.Policy.Decide(r)
	if d.Effect == bailey.Ask {
		for _, now := range d.Asks {
			if slices.Contains(c.granted, now.ID) && !slices.ContainsFunc(c.decision.Asks, now.Same) {
				c.decision = bailey.Decision{Rules: d.Rules, Policy: d.Policy, Reason: d.Reason}
				return "", bailey.Denied.Errorf("call again, so that a person is asked under the current rule",
					"rule %s was changed while a person was asked", now.ID)
			}
		}
	}
	return d.Policy, nil
}
