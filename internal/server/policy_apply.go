package server

import (
	"context"
	"path/filepath"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
	"bailey/internal/settings"
)

// propose loads the policy that a query names and compares it with the policy in force. The caller must hold mu.
func (r *policyStore) propose(q localapi.Query) (p apitype.Proposed, e policyfiles.Edition, err error) {
	p.Dir = text(q.Args, "dir")
	files := policyfiles.Files{Rules: Rules(r.bare)}
	if p.Dir != "" {
		if !filepath.IsAbs(p.Dir) {
			return p, e, &bailey.Error{Kind: bailey.Invalid, Message: "a policy's directory is an absolute path"}
		}
		if files, err = policyfiles.ReadDir(p.Dir); err != nil {
			return p, e, err
		}
	}
	if e, err = r.load(files); err != nil {
		return p, e, err
	}
	if trusted := r.signers(); p.Dir == "" && len(trusted) > 0 {
		return p, e, &bailey.Error{Kind: bailey.Denied, Message: settings.FileName + " names policySigners, and nobody can sign what is built in",
			Hint: "bailey policy init DIR writes it into files, which can be signed"}
	}
	if p.Dir != "" {
		if p.Signer, err = signer(files.Digest(), text(q.Args, "signature"), r.signers()); err != nil {
			return p, e, err
		}
	}
	now := r.now.Load()
	p.OK, p.Digest, p.Policy, p.Applied = true, files.Digest(), e.Engine.Digest(), r.applied
	p.Rules, p.Tests, p.Budgets = e.Engine.Len(), e.Tests, len(e.Budgets)
	p.Differs = now.Fault != nil || now.Files.Digest() != p.Digest || (p.Dir == "") != (r.applied.Digest == "") ||
		p.Signer != nil && (r.applied.Signer == nil || *r.applied.Signer != *p.Signer)
	before := now.Files
	if p.Dir != "" && r.applied.Digest == "" {
		before = withStarterTests(before) // as `policy init` writes them
	}
	p.BudgetChanges = budgetChanges(now.Budgets, e.Budgets)
	p.Meaning, p.Text = policy.Compare(now.Engine, e.Engine), textDifference(before, files)
	return p, e, nil
}

// compare is a query: it returns the changes that a policy would make.
func (r *policyStore) compare(_ context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, _, err := r.propose(q)
	return p, err
}

// apply is the operator command. The policy, and the one in force with which it was compared, must be those that were
// shown.
func (r *policyStore) apply(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, e, err := r.propose(q)
	if err != nil {
		return nil, err
	}
	if p.Digest != text(q.Args, "digest") || r.applied.Digest != text(q.Args, "base") {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: "the policy changed meanwhile", Hint: "bailey policy apply shows it anew"}
	}
	now := apitype.AppliedPolicy{Policy: p.Policy, Rules: p.Rules, Tests: p.Tests, Budgets: p.Budgets, At: time.Now().UTC().Truncate(time.Second),
		Operator: q.Operator, Person: from.Principal.Person}
	if p.Dir != "" {
		now.Digest, now.Dir, now.Signer = p.Digest, p.Dir, p.Signer
		if err := r.keep(e.Files); err != nil {
			return nil, err
		}
	}
	now.Since = sinceOf(r.now.Load().Budgets, e.Budgets, now.At)
	if err := r.note(ctx, apitype.PolicyEvent, now); err != nil {
		return nil, err
	}
	r.applied = now
	r.Use(e)
	p.Changed, p.Applied = true, now
	return p, nil
}
