package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/applied"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policy"
	"bailey/internal/policy/review"
	"bailey/internal/policyfiles"
	"bailey/internal/receipts"
	"bailey/internal/safefile"
	"bailey/internal/settings"
	"bailey/internal/sshsig"
	"bailey/internal/strictjson"
	"bailey/internal/terminal"
	"bailey/pack"
)

// policyStore is the policy in force. The files of a policy are read only when an operator applies them, never because
// they changed. The applied policy is stored outside the ledger under its digest, and the ledger contains the digest.
type policyStore struct {
	home    localapi.Home
	catalog *pack.Catalog // at the start; later the one in now
	bare    bool
	meter   *gateway.Budgets
	signers func() []string // trusted signers; if there are none, no signature is required
	note    func(ctx context.Context, kind string, data any) error
	log     *slog.Logger
	now     applied.Store[activePolicy]
}

// activePolicy is the policy in force.
type activePolicy struct {
	policyfiles.Edition
	applied apitype.AppliedPolicy // as the ledger records it
	catalog *pack.Catalog         // of the packs in use
}

// openPolicyStore puts the policy that was applied last into use. If it is missing or does not load with the current
// packs, the gateway starts and denies everything, because a running gateway is needed to apply another policy.
func openPolicyStore(r *policyStore, last apitype.AppliedPolicy) (*policyStore, error) {
	e, err := r.loadApplied(last, r.catalog)
	if last.Digest == "" && err != nil {
		return nil, err
	}
	if err != nil {
		e.Fault = bailey.Unavailable.Wrap(err, noPolicy,
			"run bailey policy check and bailey policy apply, or bailey policy apply --starter")
		e.Engine, _ = policy.Load(policy.Config{Actions: policyfiles.Actions(r.catalog)}) // without rules it denies everything
		r.log.Error("the policy is not used", "why", err)
	}
	if e.Engine == nil {
		return nil, e.Fault
	}
	r.now.Use = func(p activePolicy) { r.meter.Set(p.Budgets) }
	r.now.Restore(activePolicy{e, last, r.catalog})
	return r, nil
}

// loadApplied loads the policy that was applied last, for the capabilities of c.
func (r *policyStore) loadApplied(last apitype.AppliedPolicy, c *pack.Catalog) (e policyfiles.Edition, err error) {
	files := policyfiles.Files{Rules: Rules(r.bare)}
	if last.Digest != "" {
		if files, err = r.readStored(last.Digest); err != nil {
			return e, err
		}
	}
	e, err = policyfiles.Load(files, c)
	setSince(e.Budgets, last.Since)
	return e, err
}

// setSince sets the start of each budget.
func setSince(list []bailey.Budget, since []apitype.BudgetSince) {
	for i := range list {
		for _, s := range since {
			if s.ID == list[i].ID {
				list[i].Since = s.At
			}
		}
	}
}

// Use puts a policy into force that no operator applied.
func (r *policyStore) Use(e policyfiles.Edition) { r.now.Restore(activePolicy{Edition: e}) }

// Stock puts other packs into use for the rules in force. The rules must load with these packs: rules about a missing
// capability would no longer mean what the operator intended. After that check Stock calls first, which must record the
// reason. If first fails, nothing changes.
func (r *policyStore) Stock(c *pack.Catalog, first func() error) error {
	return r.now.Apply(func(now activePolicy) (activePolicy, func() error, error) {
		e, err := r.loadApplied(now.applied, c)
		if err != nil {
			return now, nil, bailey.Conflict.Wrap(err, "the policy in use cannot be loaded with these packs",
				"first apply a policy that can: bailey policy apply")
		}
		return activePolicy{e, now.applied, c}, first, nil
	})
}

const noPolicy = "the applied policy cannot be used, so nothing is allowed"

// Decide implements the gate's policy. If no policy could be loaded, the denial names no rule. It omits the load error,
// which quotes rules at length and is meant for operators.
func (r *policyStore) Decide(q bailey.Request) bailey.Decision {
	e := r.now.Load()
	if e.Fault != nil {
		return bailey.Decision{Reason: noPolicy, Hint: bailey.HintOf(e.Fault)}
	}
	if e.Other(q) {
		return bailey.Decision{Reason: fmt.Sprintf("the manifest of %s was changed while this call was running",
			q.Capability), Hint: "call again"}
	}
	return e.Engine.Decide(q)
}

// Engine returns the rules in force.
func (r *policyStore) Engine() *policy.Engine { return r.now.Load().Engine }

// Applied returns the policy that an operator applied last.
func (r *policyStore) Applied() apitype.AppliedPolicy { return r.now.Load().applied }

// keptPolicies is the directory in the home that keeps every applied policy under its digest.
const keptPolicies = "policies"

// readStored reads a policy that was applied. It returns an error if the content does not match the digest.
func (r *policyStore) readStored(digest string) (f policyfiles.Files, err error) {
	if len(digest) != 64 || strings.Trim(digest, "0123456789abcdef") != "" {
		return f, bailey.Invalid.Errorf("", "%q is not a digest of a policy", digest)
	}
	text, err := os.ReadFile(r.home.Path(keptPolicies + "/" + digest + ".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return f, bailey.NotFound.Errorf("see the files of "+keptPolicies+" in the home, which are named by digests",
			"no policy %.12s is stored", digest)
	}
	if err != nil {
		return f, err
	}
	var list []apitype.KeptFile
	if err := strictjson.Decode(text, &list); err != nil {
		return f, fmt.Errorf("%s/%s.json: %w", keptPolicies, digest, err)
	}
	for _, k := range list {
		if err := f.Add(policy.Source{Name: k.Name, Text: []byte(k.Text)}); err != nil {
			return f, err
		}
	}
	if f.Digest() != digest {
		return f, bailey.Denied.Errorf(keptPolicies+" in the home was changed",
			"the policy stored as %.12s does not match that digest", digest)
	}
	return f, nil
}

// storeFiles stores the files under their digest. They are durable before the ledger names them.
func (r *policyStore) storeFiles(f policyfiles.Files) error {
	var list []apitype.KeptFile
	for _, s := range f.All() {
		list = append(list, apitype.KeptFile{Name: s.Name, Text: string(s.Text)})
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return safefile.Put(string(r.home), keptPolicies+"/"+f.Digest()+".json", text, 0o600, nil)
}

// fillStatus fills in the policy in force.
func (r *policyStore) fillStatus(s *apitype.Status) {
	now := r.now.Load()
	if now.applied.Policy != "" {
		s.Applied = &now.applied
	}
	if now.Fault != nil {
		s.Fault = apitype.WithHint(now.Fault)
	}
	s.Drift = r.describeDrift()
}

// FixedRules returns rules that do not change, for benchmarks and tests.
func FixedRules(e *policy.Engine) *policyStore {
	r := &policyStore{}
	r.Use(policyfiles.Edition{Engine: e})
	return r
}

// proposePolicy loads the policy that a request names and compares it with the policy in force.
func (r *policyStore) proposePolicy(now activePolicy, asked apitype.PolicyRequest) (p apitype.Proposed,
	e policyfiles.Edition, err error) {
	p.Dir = asked.Dir
	files := policyfiles.Files{Rules: Rules(r.bare)}
	if p.Dir != "" {
		if !filepath.IsAbs(p.Dir) {
			return p, e, bailey.Invalid.New("the path of a policy's directory must be absolute", "")
		}
		if files, err = policyfiles.ReadDir(p.Dir); err != nil {
			return p, e, err
		}
	}
	if e, err = policyfiles.Load(files, now.catalog); err != nil {
		return p, e, err
	}
	if trusted := r.signers(); p.Dir == "" && len(trusted) > 0 {
		return p, e, bailey.Denied.New(settings.FileName+" names policySigners, but the built-in one cannot be signed",
			"run bailey policy init DIR to write it into files, which can be signed")
	}
	if p.Dir != "" {
		if p.Signer, err = verifySigner(files.Digest(), asked.Signature, r.signers()); err != nil {
			return p, e, err
		}
	}
	last := now.applied
	p.OK, p.Digest, p.Policy, p.Applied = true, files.Digest(), e.Engine.Digest(), last
	p.Rules, p.Tests, p.Budgets = e.Engine.Len(), e.Tests, len(e.Budgets)
	p.Differs = now.Fault != nil || now.Files.Digest() != p.Digest || (p.Dir == "") != (last.Digest == "") ||
		p.Signer != nil && (last.Signer == nil || *last.Signer != *p.Signer)
	before := now.Files
	if p.Dir != "" && last.Digest == "" && len(files.Tests) > 0 {
		before = withStarterTests(before) // as `policy init` writes them
	}
	p.BudgetChanges = budgetChanges(now.Budgets, e.Budgets)
	p.Meaning, p.Text = review.Compare(now.Engine, e.Engine), textDifference(before, files)
	return p, e, nil
}

// previewPolicy returns the changes that a policy would make.
func (r *policyStore) previewPolicy(_ context.Context, asked apitype.PolicyRequest,
	_ gateway.Caller) (apitype.Proposed, error) {
	p, _, err := r.proposePolicy(r.now.Load(), asked)
	return p, err
}

// applyPolicy is the operator command. The policy, and the one in force with which it was compared, must be those that were
// shown.
func (r *policyStore) applyPolicy(ctx context.Context, asked apitype.PolicyRequest,
	from gateway.Caller) (p apitype.Proposed, err error) {
	var next activePolicy
	err = r.now.Apply(func(now activePolicy) (_ activePolicy, record func() error, err error) {
		next = now
		if p, next.Edition, err = r.proposePolicy(now, asked); err != nil {
			return next, nil, err
		}
		if p.Digest != asked.Digest || now.applied.Digest != asked.Base {
			return next, nil, bailey.Conflict.New("the policy was changed meanwhile", "run bailey policy apply to see it again")
		}
		next.applied = apitype.AppliedPolicy{Policy: p.Policy, Rules: p.Rules, Tests: p.Tests, Budgets: p.Budgets,
			At: time.Now().UTC().Truncate(time.Second), Operator: from.Operator, Person: from.Principal.Person}
		next.applied.Bundle = now.applied.Bundle
		next.applied.Since = sinceOf(now.Budgets, next.Budgets, next.applied.At)
		setSince(next.Budgets, next.applied.Since)
		if p.Dir != "" {
			next.applied.Digest, next.applied.Dir, next.applied.Signer = p.Digest, p.Dir, p.Signer
			err = r.storeFiles(next.Files)
		}
		return next, func() error { return r.note(ctx, apitype.PolicyEvent, next.applied) }, err
	})
	if err == nil {
		p.Changed, p.Applied = true, next.applied
	}
	return p, err
}

// findDigest finds a policy that was applied by the prefix of a digest: that of its files, or that of its rules, which
// receipts contain. If several policies have the same rules, it returns the one that was stored last.
func (r *policyStore) findDigest(word string) (digest string, err error) {
	const least = 8
	if len(word) < least || strings.Trim(word, "0123456789abcdef") != "" {
		return "", bailey.Invalid.Errorf("use a digest that bailey policy apply or a receipt shows",
			"%q is not a digest of a policy, or the first %d characters of one", word, least)
	}
	entries, err := os.ReadDir(r.home.Path(keptPolicies))
	if err != nil && !os.IsNotExist(err) {
		return "", err
	}
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int {
		x, _ := a.Info()
		y, _ := b.Info()
		if x == nil || y == nil {
			return 0
		}
		return x.ModTime().Compare(y.ModTime())
	})
	var byFiles []string
	byRules := ""
	for _, e := range entries {
		d, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		if strings.HasPrefix(d, word) {
			byFiles = append(byFiles, d)
		}
		if files, err := r.readStored(d); err == nil && strings.HasPrefix(policy.Digest(files.Rules), word) {
			byRules = d
		}
	}
	switch {
	case len(byFiles) == 1:
		return byFiles[0], nil
	case len(byFiles) > 1:
		return "", bailey.Invalid.Errorf("give more of the digest", "%d policies begin with %s", len(byFiles), word)
	case byRules != "":
		return byRules, nil
	}
	return "", bailey.NotFound.Errorf("see the applied policies in "+r.home.Path(keptPolicies)+", named by the digests of their files",
		"no policy %.12s is stored", word)
}

// sinceOf returns the start of each budget: now, unless it already counted in the same way.
func sinceOf(old, list []bailey.Budget, now time.Time) (since []apitype.BudgetSince) {
	for _, b := range list {
		at := now
		for _, o := range old {
			if o.SameCount(b) {
				at = o.Since
			}
		}
		since = append(since, apitype.BudgetSince{ID: b.ID, At: at})
	}
	return since
}

// budgetChanges describes the changes of budgets, one line each.
func budgetChanges(old, now []bailey.Budget) []string {
	lines := []string{}
	words := func(b bailey.Budget) string {
		var w []string
		for _, bound := range []struct {
			set   bool
			words string
		}{
			{b.Calls > 0, apitype.Counts(b.Calls, "call")},
			{b.Concurrent > 0, fmt.Sprintf("%d at one time", b.Concurrent)},
			{b.Wall > 0, b.Wall.String() + " of running tools"},
			{b.CPU > 0, b.CPU.String() + " of processor time"},
			{b.Output > 0, fmt.Sprintf("%d bytes of output", b.Output)},
			{b.InputTokens > 0, fmt.Sprintf("%d input tokens", b.InputTokens)},
			{b.OutputTokens > 0, fmt.Sprintf("%d output tokens", b.OutputTokens)},
			{b.MicroUSD > 0, apitype.Dollars(b.MicroUSD) + " for models"},
			{b.Session, "per session"}, {b.Agent, "per agent"}, {b.Capability, "per capability"},
			{b.Within > 0, "within " + b.Within.String()},
			{len(b.Capabilities) > 0, "of " + apitype.List(idStrings(b.Capabilities))},
			{len(b.Agents) > 0, "by " + apitype.List(b.Agents)},
		} {
			if bound.set {
				w = append(w, bound.words)
			}
		}
		return strings.Join(w, ", ")
	}
	find := func(in []bailey.Budget, id string) string {
		for _, b := range in {
			if b.ID == id {
				return words(b)
			}
		}
		return ""
	}
	for _, b := range now {
		switch was := find(old, b.ID); {
		case was == "":
			lines = append(lines, fmt.Sprintf("+ budget %s: %s", b.ID, words(b)))
		case was != words(b):
			lines = append(lines, fmt.Sprintf("budget %s: was %s; now %s", b.ID, was, words(b)))
		}
	}
	for _, b := range old {
		if find(now, b.ID) == "" {
			lines = append(lines, fmt.Sprintf("- budget %s: was %s", b.ID, words(b)))
		}
	}
	return lines
}

func idStrings(list []bailey.CapabilityID) (words []string) {
	for _, id := range list {
		words = append(words, string(id))
	}
	return words
}

// textDifference shows the changed lines of each file.
func textDifference(old, now policyfiles.Files) string {
	texts := map[string][2]string{}
	var names []string
	for i, f := range []policyfiles.Files{old, now} {
		for _, s := range f.All() {
			pair, known := texts[s.Name]
			if !known {
				names = append(names, s.Name)
			}
			pair[i] = string(s.Text)
			texts[s.Name] = pair
		}
	}
	var b strings.Builder
	for _, name := range names {
		if d := terminal.Diff(texts[name][0], texts[name][1]); d != "" {
			fmt.Fprintf(&b, "  %s\n%s", name, d)
		}
	}
	return b.String()
}

// describeDrift describes how the files differ from the applied policy, or returns "".
func (r *policyStore) describeDrift() string {
	now := r.now.Load()
	if now.applied.Dir == "" {
		return ""
	}
	files, err := policyfiles.ReadDir(now.applied.Dir)
	if err != nil {
		return fmt.Sprintf("what was applied stays in use, but its files cannot be read: %v", err)
	}
	var names []string
	texts := map[string]string{}
	for _, s := range now.Files.All() {
		texts[s.Name] = string(s.Text)
	}
	for _, s := range files.All() {
		was, known := texts[s.Name]
		if delete(texts, s.Name); !known || was != string(s.Text) {
			names = append(names, s.Name)
		}
	}
	for name := range texts {
		names = append(names, name+" (gone)")
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%s in %s differs from what was applied, which stays in use", apitype.List(names), now.applied.Dir)
}

// explainReceipt handles `policy explain` for a receipt.
func (s *Server) explainReceipt(ctx context.Context, asked apitype.ID,
	from gateway.Caller) (out apitype.Reconsidered, err error) {
	found, err := s.showReceipt(ctx, asked, from)
	if err != nil {
		return out, err
	}
	r := found.Record
	h := policyfiles.RequestRebuilder{Catalog: s.shelf.Catalog(),
		Body: func(id bailey.ReceiptID, said bailey.Body) ([]byte, error) {
			return s.ledger.Body(id, receipts.InputPart, said)
		}}
	p := h.Past(r)
	out = apitype.Reconsidered{Receipt: r.Intent.Receipt, Capability: r.Intent.Capability,
		StartedAt: r.Intent.StartedAt, DryRun: r.Intent.DryRun,
		Then: apitype.DecidedThen{Outcome: r.Status(), Rules: []bailey.Rule{}}, Hidden: p.Hidden, Marks: p.Marks}
	if o := r.Outcome; o != nil {
		out.Then.Decision, out.Then.Reason, out.Then.Approval, out.Then.Policy = o.Decision, o.Reason, o.Approval, o.PolicyDigest
		if o.Decision != "" {
			out.Then.Decision = policyfiles.Was(o).String()
		}
		out.Then.Rules = append(out.Then.Rules, o.Rules...)
	}
	if out.Undecided = review.WhyUndecidable(s.Rules.Engine(), p); out.Undecided == "" {
		now := review.Explain(s.Rules.Engine(), p.Request)
		out.Now = &now
	}
	return out, nil
}

// showPolicy returns the files of a policy.
func (r *policyStore) showPolicy(_ context.Context, asked apitype.PolicyName,
	_ gateway.Caller) (apitype.PolicyText, error) {
	out := apitype.PolicyText{AppliedPolicy: r.Applied()}
	files := r.now.Load().Files
	if digest := asked.Digest; digest != "" {
		var err error
		if digest, err = r.findDigest(digest); err == nil {
			files, err = r.readStored(digest)
		}
		if err != nil {
			return out, err
		}
		out.AppliedPolicy = apitype.AppliedPolicy{Digest: digest}
	} else if out.Dir == "" {
		files = withStarterTests(files)
	}
	for _, s := range files.All() {
		out.Files = append(out.Files, apitype.KeptFile{Name: s.Name, Text: string(s.Text)})
	}
	return out, nil
}

// addRule returns the files of the policy in force with a rule that an operator wishes. A permit of a capability that
// reaches the network names the hosts of its manifest; if these depend on the input, the wish must name them.
func (s *Server) addRule(_ context.Context, w review.Wish, _ gateway.Caller) (out apitype.RuleAdded, err error) {
	m, err := s.shelf.Catalog().Lookup(w.Capability)
	if err != nil {
		return out, err
	}
	reaches := m.Reaches()
	if !w.Forbid && len(w.Egress) == 0 && len(reaches) > 0 {
		if slices.ContainsFunc(reaches, func(h string) bool { return strings.Contains(h, "{{") }) {
			return out, bailey.Invalid.Errorf(fmt.Sprintf("name them, for example: bailey allow %s --egress example.com:443", w.Capability),
				"the hosts that %s reaches depend on its input", w.Capability)
		}
		w.Egress = reaches
	}
	for i, h := range w.Egress {
		if slices.Contains(reaches, h) {
			continue
		}
		e, err := bailey.ParseEndpoint(h)
		if err != nil {
			return out, err
		}
		if strings.HasPrefix(e.Host, "*") {
			return out, bailey.Invalid.New("--egress "+terminal.Shown(h)+" has a star, and a rule compares whole names", "name each host")
		}
		w.Egress[i] = e.String()
	}
	now := s.Rules.now.Load()
	if now.Fault != nil {
		return out, now.Fault
	}
	if len(s.policySigners()) > 0 {
		return out, bailey.Denied.New(settings.FileName+" names policySigners, so one command cannot add a rule",
			"add the rule to the policy's files, sign them, and run bailey policy apply DIR --signature FILE")
	}
	files := now.Files
	if files.Rules, out.Written, err = w.Write(now.Engine, files.Rules); err != nil {
		return out, err
	}
	out.Base, out.Dir = now.applied.Digest, now.applied.Dir
	for _, f := range files.All() {
		out.Files = append(out.Files, apitype.KeptFile{Name: f.Name, Text: string(f.Text)})
	}
	return out, nil
}

// withStarterTests adds tests and budgets to the built-in rules, as a starting point.
func withStarterTests(f policyfiles.Files) policyfiles.Files {
	f.Tests = append(f.Tests, policy.StarterTests())
	f.Budgets = append(f.Budgets, policy.StarterBudgets())
	return f
}

// verifySigner returns the signer of a policy. It returns nil if no signature is given and none is required.
func verifySigner(digest, signature string, trusted []string) (*apitype.PolicySigner, error) {
	if signature == "" && len(trusted) == 0 {
		return nil, nil
	}
	if signature == "" {
		return nil, bailey.Denied.New(settings.FileName+" names policySigners, but this policy is not signed",
			"run bailey policy text DIR | ssh-keygen -Y sign -n "+policyfiles.SignatureNamespace+
				" -f KEY > FILE, then bailey policy apply DIR --signature FILE")
	}
	if len(trusted) == 0 {
		return nil, bailey.Denied.New("no key is trusted to sign a policy",
			"list keys under policySigners in "+settings.FileName+
				", then run bailey init --apply; or apply without --signature")
	}
	by, _, err := verifySignature(policyfiles.SignedText(digest), signature, policyfiles.SignatureNamespace, trusted,
		"the policy's signature")
	if err != nil {
		return nil, err
	}
	return &apitype.PolicySigner{Name: by.Name, Key: by.Key, Touch: by.Touch}, nil
}

// verifySignature returns the signer of a text, and the keys of the trusted lines in the same order.
func verifySignature(text []byte, signature, namespace string, trusted []string,
	what string) (by sshsig.Signer, keys []sshsig.Key, err error) {
	if keys, err = sshsig.ParseKeys([]byte(strings.Join(trusted, "\n"))); err != nil {
		return by, nil, err
	}
	if by, err = sshsig.Verify(text, []byte(signature), namespace, keys); err != nil {
		return by, nil, bailey.KindOf(err).Wrap(err, what, bailey.HintOf(err))
	}
	return by, keys, nil
}

// StandIn sets the fields that a gateway of this home would report about its policy.
func StandIn(home localapi.Home, s *apitype.Status) error {
	l, err := Replayed(home)
	if err != nil {
		return err
	}
	catalog, _, err := openCatalog(home, l.Packs)
	if err != nil {
		return err
	}
	r, err := openPolicyStore(&policyStore{home: home, catalog: catalog, meter: gateway.NewBudgets(nil),
		log: slog.New(slog.DiscardHandler)}, l.Policy)
	if err != nil {
		return err
	}
	r.fillStatus(s)
	if l.Killed.On() {
		s.Killed = &l.Killed
	}
	return nil
}
