package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/fleet"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/passkey"
	"bailey/internal/policy"
	"bailey/internal/policy/review"
	"bailey/internal/policyfiles"
	"bailey/internal/settings"
	"bailey/internal/strictjson"
)

// This file is what a gateway does for its control plane: it reports questions and how they end, and takes answers,
// orders to stop, and policies. It believes the control plane nothing that permits a call: a grant needs the signature of
// an approver of settings.yaml, and a policy that of a signer. What only stops calls needs no signature.

// byControlPlane is the operator right of what the control plane sent, and byItsPages that of an answer by a passkey on
// pages of the control plane itself. Receipts name it.
const (
	byControlPlane localapi.Operator = "control-plane"
	byItsPages     localapi.Operator = "control-plane-pages"
)

// controlPlane keeps events for the control plane, as [enrol.Keeper] does. Without a control plane it does nothing.
type controlPlane interface {
	Report(kind string, v any) error
}

// reportQuestions reports the open questions: they may be older than the enrolment.
func (s *Server) reportQuestions() {
	s.reportPolicy()
	for _, q := range s.Queue.Open() {
		s.reportQuestion(q.Question)
	}
}

// reportEvent keeps an event for the control plane. A question waits for its answer on this machine, too, so an event that
// cannot be kept is no reason to refuse a call.
func (s *Server) reportEvent(kind string, body any) {
	if s.reports == nil {
		return
	}
	if err := s.reports.Report(kind, body); err != nil {
		s.Log.Error("the control plane is not told", "kind", kind, "err", err)
	}
}

// tellQuestion tells people of this machine, and the control plane.
func (s *Server) tellQuestion(kind string, q bailey.Question, reason string) {
	s.sender.Tell(kind, q, reason)
	if kind == approve.Opened {
		s.reportQuestion(q)
		return
	}
	s.reportEvent(fleet.ApprovalDecided, fleet.Decided{ID: q.ID, Granted: approve.IsGrant(reason), Reason: reason})
}

// reportPolicy tells the control plane which rules are in use.
func (s *Server) reportPolicy() {
	if s.reports == nil {
		return
	}
	now := s.Rules.now.Load()
	p := fleet.Policy{Digest: now.applied.Digest, Bundle: now.applied.Bundle, Applied: now.applied.At, Count: now.Engine.Len(),
		Rules: []fleet.PolicyRule{}}
	if now.Fault != nil {
		p.Fault = printableWords(now.Fault.Error(), 10*fleet.MaxPolicyText)
	}
	for r := range now.Engine.Rules() {
		one := fleet.PolicyRule{ID: printableWords(string(r.ID), fleet.MaxPolicyText), Effect: "forbid",
			Reason: printableWords(r.Reason, fleet.MaxPolicyText), Source: printableWords(r.Source, fleet.MaxPolicyText)}
		switch {
		case r.IsPermit():
			one.Effect = "permit"
		case r.Asks:
			one.Effect = "ask"
		}
		p.Rules = append(p.Rules, one)
	}
	slices.SortFunc(p.Rules, func(a, b fleet.PolicyRule) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.ID, b.ID))
	})
	p.Rules = p.Rules[:min(len(p.Rules), fleet.MaxPolicyRules)]
	s.reportEvent(fleet.PolicyState, p)
}

func (s *Server) reportQuestion(q bailey.Question) {
	w := bailey.Combine(q.Rules)
	a := fleet.Asked{ID: q.ID, Text: q.Text, Digest: q.Digest, Agent: q.Principal.Agent, Person: q.Principal.Person,
		Capability: q.Call, Impact: q.Impact, Preview: q.Preview.Output.Text, Rules: []fleet.AskedRule{},
		Roles: w.Roles, Count: w.Count, Level: w.Level, At: q.AskedAt, Expires: q.Expires,
		Pages: s.settings.Applied().ControlPlanePages}
	for _, r := range q.Rules {
		a.Rules = append(a.Rules, fleet.AskedRule{ID: string(r.ID), Reason: r.Reason})
	}
	s.reportEvent(fleet.ApprovalAsked, a)
}

// fleetHandlers returns the handlers of the commands of the control plane.
func (s *Server) fleetHandlers() fleet.Handlers {
	return fleet.Handlers{
		fleet.ApprovalAnswer: handleCommand(s.takeAnswer),
		fleet.Kill:           handleCommand(s.takeOrders),
		fleet.Unkill:         handleCommand(s.takeOrders),
		fleet.BundleOffer:    handleCommand(s.takeBundle),
		fleet.Call:           handleCommand(s.makeFleetCall),
		fleet.Budget:         handleCommand(s.takeBudgets),
		"status":             s.answerStatus,
	}
}

// handleCommand decodes a body strictly: a field that this version does not know could be a condition.
func handleCommand[I, O any](f func(context.Context, I) (O, error)) fleet.Handler {
	return func(ctx context.Context, body []byte) ([]byte, error) {
		var in I
		if err := strictjson.Decode(body, &in); err != nil {
			return nil, bailey.Invalid.Wrap(err, "the command cannot be read", "both sides must be of the same version")
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	}
}

// takeAnswer takes an answer that the control plane relays.
func (s *Server) takeAnswer(ctx context.Context, a fleet.Answer) (approve.Tally, error) {
	if a.Grant && a.Signature == "" {
		return approve.Tally{}, bailey.Denied.New("a grant that comes through the control plane must be signed",
			"sign with an SSH key or a passkey that the gateway's settings.yaml lists under approvers")
	}
	by, err := s.checkPages(a.Signature)
	if err != nil {
		return approve.Tally{}, err
	}
	person := printableWords(a.Person, 100)
	if !a.Grant {
		person += ", through the control plane"
	}
	reason := printableWords(a.Reason, apitype.MaxDenial)
	return s.Queue.Answer(context.WithoutCancel(ctx), approve.Given{Question: a.Question, Digest: a.Digest,
		Grant: a.Grant, Signature: a.Signature, Reason: reason, Person: person, Operator: string(by)})
}

// checkPages returns the operator right of an answer. It refuses an answer by a passkey on pages of the control plane
// itself, unless the settings accept them: the control plane decides what its pages show, and could have a person sign
// the answer to a question while they only sign in.
func (s *Server) checkPages(signature string) (by localapi.Operator, err error) {
	e := s.enrolled.Load()
	if e == nil || !passkey.IsAnswer(signature) {
		return byControlPlane, nil
	}
	host, err := passkey.HostOf(signature)
	if err != nil {
		return "", err
	}
	if u, err := url.Parse(e.URL); err == nil && !strings.EqualFold(u.Hostname(), host) {
		return byControlPlane, nil
	}
	if !s.settings.Applied().ControlPlanePages {
		return "", bailey.Denied.Errorf("answer with an SSH key, or with a passkey on pages that another machine serves; "+
			"or accept such pages with controlPlanePages: true in "+settings.FileName,
			"the passkey was used on pages of the control plane %s, which decides what they show", host)
	}
	return byItsPages, nil
}

// printableWords returns a text of others on one line of limited length.
func printableWords(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, " "))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return strings.TrimSpace(text)
}

// Limits of orders, so that they fit one entry of the ledger.
const (
	maxOrders     = 100
	maxOrderAgent = 200
	maxOrdersText = 32 << 10
)

// takeOrders stops what the control plane orders to stop, and resumes what it no longer does. More orders than a gateway
// keeps stop everything.
func (s *Server) takeOrders(ctx context.Context, o fleet.Orders) (apitype.Orders, error) {
	if o.Revision > uint64(time.Now().Add(24*time.Hour).UnixMicro()) {
		return apitype.Orders{}, bailey.Invalid.New("the revision of the orders is a time in the future",
			"set the clocks of the control plane and of the gateway")
	}
	orders := apitype.Orders{Revision: o.Revision}
	if e := s.enrolled.Load(); e != nil {
		orders.Host = e.Host
	}
	for _, k := range o.Kills[:min(len(o.Kills), maxOrders)] {
		if len(k.Agent) > maxOrderAgent {
			return apitype.Orders{}, bailey.Invalid.New("an order names an agent with more than 200 bytes", "")
		}
		if year := k.At.UTC().Year(); year < 1 || year > 9999 {
			k.At = time.Now()
		}
		orders.Kills = append(orders.Kills, apitype.Order{ID: printableWords(k.ID, 40), Agent: k.Agent,
			Reason: printableWords(k.Reason, apitype.MaxKillReason), Person: printableWords(k.Person, 100), At: k.At.UTC()})
	}
	if text, err := json.Marshal(orders); err != nil || len(text) > maxOrdersText || len(o.Kills) > maxOrders {
		orders.Kills = []apitype.Order{{ID: "all", Reason: "more orders than a gateway keeps", At: time.Now().UTC()}}
	}
	return s.kill.Follow(context.WithoutCancel(ctx), orders)
}

// takeBundle applies a policy that a signer of the settings signed. The control plane learns the outcome, also of a
// refusal.
func (s *Server) takeBundle(ctx context.Context, b fleet.Bundle) (fleet.BundleResult, error) {
	before := s.Rules.Engine().Digest()
	r, err := s.Rules.applyBundle(ctx, b)
	if err != nil {
		r.Fault, r.Hint = err.Error(), bailey.HintOf(err)
	}
	s.endPolicyGrants(ctx, before)
	s.reportEvent(fleet.BundleState, r)
	return r, nil
}

// readBundle returns the files of a bundle whose signature is that of a signer.
func (r *policyStore) readBundle(b fleet.Bundle) (f policyfiles.Files, by *apitype.PolicySigner, err error) {
	for _, file := range b.Files {
		if err := f.Add(policy.Source{Name: file.Name, Text: []byte(file.Text)}); err != nil {
			return f, nil, err
		}
	}
	trusted := r.signers()
	if len(trusted) == 0 {
		return f, nil, bailey.Denied.New("this gateway trusts no signer of policies, so it takes none from a control plane",
			"list keys under policySigners in "+settings.FileName+", then run bailey init --apply")
	}
	signed, _, err := verifySignature(policyfiles.BundleText(b.Serial, f.Digest()), b.Signature,
		policyfiles.BundleNamespace, trusted, "the bundle's signature")
	return f, &apitype.PolicySigner{Name: signed.Name, Key: signed.Key, Touch: signed.Touch}, err
}

// applyBundle applies a bundle. Its serial number must be higher than that of any bundle before it: otherwise a control
// plane could bring back a policy that was signed long ago and permits more.
func (r *policyStore) applyBundle(ctx context.Context, b fleet.Bundle) (out fleet.BundleResult, err error) {
	out.Serial = b.Serial
	files, signer, err := r.readBundle(b)
	if err != nil {
		return out, err
	}
	out.Digest, out.Signer = files.Digest(), signer.Name
	err = r.now.Apply(func(now activePolicy) (next activePolicy, record func() error, err error) {
		last := now.applied
		switch {
		case b.Serial == last.Bundle && out.Digest == last.Digest:
			out.Applied = true
			return now, nil, nil
		case b.Serial <= last.Bundle:
			return now, nil, bailey.Denied.Errorf("sign it with a higher serial number",
				"bundle %d is not newer than bundle %d, which was applied", b.Serial, last.Bundle)
		}
		next = activePolicy{catalog: now.catalog}
		if next.Edition, err = policyfiles.Load(files, now.catalog); err != nil {
			return now, nil, err
		}
		out.Changes = bundleChanges(now, next)
		next.applied = apitype.AppliedPolicy{Digest: out.Digest, Policy: next.Engine.Digest(), Rules: next.Engine.Len(),
			Tests: next.Tests, Budgets: len(next.Budgets), Signer: signer, Bundle: b.Serial,
			At: time.Now().UTC().Truncate(time.Second), Operator: byControlPlane, Person: signer.Name}
		next.applied.Since = sinceOf(now.Budgets, next.Budgets, next.applied.At)
		setSince(next.Budgets, next.applied.Since)
		return next, func() error { return r.note(ctx, apitype.PolicyEvent, next.applied) }, r.storeFiles(files)
	})
	out.Applied = err == nil
	return out, err
}

// maxChanges limits the changes that a gateway reports.
const maxChanges = 200

// bundleChanges describes how a policy changes what may run, what may run now first.
func bundleChanges(old, now activePolicy) (lines []string) {
	d := review.Compare(old.Engine, now.Engine)
	for _, c := range []struct {
		sign string
		list []review.Shift
	}{{"+", d.Gained}, {"~", d.Changed}, {"-", d.Lost}} {
		for _, shift := range c.list {
			lines = append(lines, fmt.Sprintf("%s %s", c.sign, shift.Capability))
		}
	}
	lines = append(lines, budgetChanges(old.Budgets, now.Budgets)...)
	if n := len(lines); n > maxChanges {
		lines = append(lines[:maxChanges], fmt.Sprintf("and %d more", n-maxChanges))
	}
	return lines
}

// withdrawAgent ends the questions and the grants of an agent.
func (s *Server) withdrawAgent(agent, reason string) {
	s.Queue.Withdraw(reason, func(q bailey.Question) bool { return q.Principal.Agent == agent })
	s.Queue.EndGrants(reason, func(g bailey.Grant) bool { return g.Principal.Agent == agent })
}
