package server

import (
	"context"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
)

// show is a query: it returns the files of a policy.
func (r *policyStore) show(_ context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	out := apitype.PolicyText{AppliedPolicy: r.Applied()}
	files := r.now.Load().Files
	if digest := text(q.Args, "digest"); digest != "" {
		var err error
		if digest, err = r.named(digest); err == nil {
			files, err = r.kept(digest)
		}
		if err != nil {
			return nil, err
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

// withStarterTests adds tests and budgets to the built-in rules, as a starting point.
func withStarterTests(f policyfiles.Files) policyfiles.Files {
	f.Tests = append(f.Tests, policy.StarterTests())
	f.Budgets = append(f.Budgets, policy.StarterBudgets())
	return f
}
