package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/policy"
	"bailey/internal/wire"
)

// proposed is a policy that could be applied, compared with the policy in force.
type proposed struct {
	OK            bool              `json:"ok"`
	Changed       bool              `json:"changed"` // it was applied
	Dir           string            `json:"dir,omitempty"`
	Digest        string            `json:"digest"` // of its files
	Policy        string            `json:"policy"` // digest of its rules
	Rules         int               `json:"rules"`
	Tests         int               `json:"tests"` // number that passed
	Budgets       int               `json:"budgets"`
	Differs       bool              `json:"differs"` // from the policy in force
	Meaning       policy.Difference `json:"meaning"`
	BudgetChanges []string          `json:"budgetChanges"`
	Text          string            `json:"text,omitempty"` // the difference, line by line
	Signer        *policySigner     `json:"signer,omitempty"`
	Applied       appliedPolicy     `json:"applied"` // the policy applied before
}

func (a *app) policyApply() *cobra.Command {
	var yes, starter bool
	var signature string
	cmd := &cobra.Command{
		Use: "apply [DIR]", Short: "Put a policy to use, after showing what it changes",
		Long: `Put the policy in DIR to use, from the next call on; without DIR, that in $BAILEY_HOME/policy.

It is the whole policy: what stands in no file of DIR does not count. It shows what changes, in meaning and in
text, and asks. A policy with a fault, or a test that does not pass, changes nothing. What was applied stays in
use whatever becomes of the files; that they differ from it is a finding of status and doctor.

With --signature FILE the policy has to be signed, by a key that settings.yaml names under policySigners:

  bailey policy text DIR | ssh-keygen -Y sign -n policy@bailey -f KEY > FILE

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey policy apply\n  bailey policy apply ./rules\n  bailey policy apply --starter",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if starter && len(args) > 0 {
				return &bailey.Error{Kind: bailey.Invalid, Message: "--starter goes without a directory", Hint: "bailey policy apply --help"}
			}
			return a.applyPolicy(cmd.Context(), args, starter, signature, yes)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&yes, "yes", false, "do not ask")
	f.BoolVar(&starter, "starter", false, "go back to the policy that is built in")
	f.StringVar(&signature, "signature", "", "a detached SSH signature of the policy, a `file`")
	return cmd
}

func (a *app) applyPolicy(ctx context.Context, args []string, starter bool, signature string, yes bool) error {
	op, err := a.operator("policy apply", yes)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	query := map[string]any{}
	if !starter {
		if query["dir"], err = policyDirOf(c.Home, args); err != nil {
			return err
		}
	}
	if signature != "" {
		text, err := readSignature(signature, signatureNamespace)
		if err != nil {
			return err
		}
		query["signature"] = text
	}
	var p proposed
	if err := c.Look(ctx, wire.Query{Verb: "policy.compare", Args: query}, &p); err != nil {
		return err
	}
	if p.Differs {
		if !yes || !a.json {
			fmt.Fprint(a.dialog(), p.words())
		}
		if !yes {
			if err := a.confirm(ctx, "Apply this?"); err != nil {
				return err
			}
		}
		query["digest"], query["base"] = p.Digest, p.Applied.Digest
		if err := act(ctx, c, op, policyEvent, query, &p); err != nil {
			return err
		}
	}
	switch {
	case a.json:
		return a.print(p)
	case !p.Changed:
		fmt.Fprintln(a.stdout, "nothing changes: this policy is in use")
	default:
		fmt.Fprintf(a.stdout, "applied: %s in use from the next call on, policy %.12s (files %.12s)\n", counts(p.Rules, "rule"), p.Policy, p.Digest)
	}
	return nil
}

// policyDirOf returns the directory in args, or the default one of the home, as an absolute path.
func policyDirOf(home wire.Home, args []string) (string, error) {
	switch {
	case len(args) == 0:
		return filepath.Join(string(home), "policy"), nil
	case args[0] == "":
		return "", &bailey.Error{Kind: bailey.Invalid, Message: "the policy's directory has an empty name", Hint: "leave it out for " + filepath.Join(string(home), "policy")}
	}
	return filepath.Abs(args[0])
}

func readSignature(name, namespace string) (string, error) {
	const largest = 64 << 10
	f, err := os.Open(name)
	if err != nil {
		return "", &bailey.Error{Kind: bailey.Invalid, Message: "the signature cannot be read", Err: err, Hint: "make it with ssh-keygen -Y sign -n " + namespace}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, largest+1))
	if err == nil && len(text) > largest {
		err = &bailey.Error{Kind: bailey.Invalid, Message: "that is no signature: it is over 64 KiB", Hint: "make it with ssh-keygen -Y sign -n " + namespace}
	}
	return string(text), err
}

func (p proposed) words() string {
	var b strings.Builder
	from := "the policy that is built in"
	if p.Dir != "" {
		from = visible(p.Dir)
	}
	fmt.Fprintf(&b, "%s: %s, %s, %s\n\n", from, counts(p.Rules, "rule"), counts(p.Tests, "test")+" passed", counts(p.Budgets, "budget"))
	meaning := p.Meaning.String()
	if changes := strings.Join(p.BudgetChanges, "\n"); changes != "" && p.Meaning.None() {
		meaning = changes
	} else if changes != "" {
		meaning = strings.TrimRight(meaning, "\n") + "\n\n" + changes
	}
	fmt.Fprintf(&b, "in meaning\n%s\nin text\n%s\n", indented(meaning), cmp.Or(p.Text, "  nothing\n"))
	return b.String()
}

func indented(s string) string {
	var b strings.Builder
	for _, l := range splitLines(s) {
		b.WriteString("  " + escaped(l) + "\n")
	}
	return b.String()
}

// counts returns a number with its noun.
func counts(n int, noun string) string {
	if stem, ok := strings.CutSuffix(noun, "ty"); ok && n != 1 {
		noun = stem + "ties"
	} else if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// propose loads the policy that a query names and compares it with the policy in force. The caller must hold mu.
func (r *rulebook) propose(q wire.Query) (p proposed, e edition, err error) {
	p.Dir = text(q.Args, "dir")
	files := policyFiles{Rules: rules(r.bare)}
	if p.Dir != "" {
		if !filepath.IsAbs(p.Dir) {
			return p, e, &bailey.Error{Kind: bailey.Invalid, Message: "a policy's directory is an absolute path"}
		}
		if files, err = readPolicyDir(p.Dir); err != nil {
			return p, e, err
		}
	}
	if e, err = r.load(files); err != nil {
		return p, e, err
	}
	if trusted := r.signers(); p.Dir == "" && len(trusted) > 0 {
		return p, e, &bailey.Error{Kind: bailey.Denied, Message: gateway.SettingsName + " names policySigners, and nobody can sign what is built in",
			Hint: "bailey policy init DIR writes it into files, which can be signed"}
	}
	if p.Dir != "" {
		if p.Signer, err = signer(files.digest(), text(q.Args, "signature"), r.signers()); err != nil {
			return p, e, err
		}
	}
	now := r.now.Load()
	p.OK, p.Digest, p.Policy, p.Applied = true, files.digest(), e.engine.Digest(), r.applied
	p.Rules, p.Tests, p.Budgets = e.engine.Len(), e.tests, len(e.budgets)
	p.Differs = now.fault != nil || now.files.digest() != p.Digest || (p.Dir == "") != (r.applied.Digest == "") ||
		p.Signer != nil && (r.applied.Signer == nil || *r.applied.Signer != *p.Signer)
	before := now.files
	if p.Dir != "" && r.applied.Digest == "" {
		before = withStarterTests(before) // as `policy init` writes them
	}
	p.BudgetChanges = budgetChanges(now.budgets, e.budgets)
	p.Meaning, p.Text = policy.Compare(now.engine, e.engine), textDifference(before, files)
	return p, e, nil
}

// compare is a query: it returns the changes that a policy would make.
func (r *rulebook) compare(_ context.Context, q wire.Query, _ bailey.Call) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, _, err := r.propose(q)
	return p, err
}

// apply is the operator command. The policy, and the one in force with which it was compared, must be those that were
// shown.
func (r *rulebook) apply(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, e, err := r.propose(q)
	if err != nil {
		return nil, err
	}
	if p.Digest != text(q.Args, "digest") || r.applied.Digest != text(q.Args, "base") {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: "the policy changed meanwhile", Hint: "bailey policy apply shows it anew"}
	}
	now := appliedPolicy{Policy: p.Policy, Rules: p.Rules, Tests: p.Tests, Budgets: p.Budgets, At: time.Now().UTC().Truncate(time.Second),
		Operator: q.Operator, Person: from.Principal.Person}
	if p.Dir != "" {
		now.Digest, now.Dir, now.Signer = p.Digest, p.Dir, p.Signer
		if err := r.keep(e.files); err != nil {
			return nil, err
		}
	}
	now.Since = sinceOf(r.now.Load().budgets, e.budgets, now.At)
	if err := r.note(ctx, policyEvent, now); err != nil {
		return nil, err
	}
	r.applied = now
	r.use(e)
	p.Changed, p.Applied = true, now
	return p, nil
}
