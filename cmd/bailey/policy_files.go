package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/policy"
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// checked is the result of a successful `policy check`.
type checked struct {
	OK      bool   `json:"ok"`
	Dir     string `json:"dir"`
	Digest  string `json:"digest"`
	Policy  string `json:"policy"`
	Rules   int    `json:"rules"`
	Tests   int    `json:"tests"`
	Budgets int    `json:"budgets"`
}

func (a *app) policyCheck() *cobra.Command {
	return &cobra.Command{
		Use: "check [DIR]", Short: "Say what is wrong with a policy, and run its tests",
		Long: `Load the policy in DIR, or in $BAILEY_HOME/policy, as apply would, and run the tests beside its rules. Nothing takes
effect, and no gateway is needed.`,
		Example: "  bailey policy check\n  bailey policy check ./rules",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := a.checkPolicy(args)
			if err != nil {
				return err
			}
			if a.json {
				return a.print(c)
			}
			_, err = fmt.Fprintf(a.stdout, "%s: %s, %s passed, %s; policy %.12s (files %.12s)\n", visible(c.Dir), counts(c.Rules, "rule"), counts(c.Tests, "test"), counts(c.Budgets, "budget"), c.Policy, c.Digest)
			return err
		},
	}
}

func (a *app) checkPolicy(args []string) (c checked, err error) {
	home, err := wire.FindHome()
	if err != nil {
		return c, err
	}
	if c.Dir, err = policyDirOf(home, args); err != nil {
		return c, err
	}
	files, err := readPolicyDir(c.Dir)
	if err != nil {
		return c, err
	}
	catalog, err := builtIn()
	if err != nil {
		return c, err
	}
	e, err := loadPolicy(files, catalog, actions(catalog))
	if err != nil {
		return c, err
	}
	c.OK, c.Digest, c.Policy = true, files.digest(), e.engine.Digest()
	c.Rules, c.Tests, c.Budgets = e.engine.Len(), e.tests, len(e.budgets)
	return c, nil
}

func (a *app) policyInit() *cobra.Command {
	return &cobra.Command{
		Use: "init [DIR]", Short: "Write the policy in use into files, to begin with",
		Long: `Write the policy in use into DIR, or into $BAILEY_HOME/policy, which must not hold one: the rules, their tests, and
budgets as comments. Nothing changes until "bailey policy apply".`,
		Example: "  bailey policy init\n  bailey policy check\n  bailey policy apply",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			dir, err := policyDirOf(c.Home, args)
			if err != nil {
				return err
			}
			var now policyText
			if err := c.Look(cmd.Context(), wire.Query{Verb: "policy.show"}, &now); err != nil {
				return err
			}
			names, err := writePolicy(dir, now.Files)
			if err != nil {
				return err
			}
			if a.json {
				return a.print(map[string]any{"ok": true, "dir": dir, "files": names})
			}
			_, err = fmt.Fprintf(a.stdout, "wrote %s into %s; change them, then bailey policy check and bailey policy apply\n", list(names), visible(dir))
			return err
		},
	}
}

// writePolicy writes all files or none. It never overwrites a policy.
func writePolicy(dir string, files []keptFile) (names []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if old, err := readPolicyDir(dir); err == nil || len(old.all()) > 0 {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: "there is a policy in " + dir + " already", Hint: "change that one, or name another directory"}
	}
	for _, f := range files {
		w, err := root.OpenFile(f.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			_, err = w.WriteString(f.Text)
			err = errors.Join(err, w.Close())
		}
		if err != nil {
			for _, n := range names {
				root.Remove(n)
			}
			if !errors.Is(err, fs.ErrExist) {
				root.Remove(f.Name)
			}
			return nil, &bailey.Error{Kind: bailey.Unavailable, Message: filepath.Join(dir, f.Name) + " cannot be written", Err: err, Hint: "name another directory"}
		}
		names = append(names, f.Name)
	}
	return names, nil
}

// policyText is an applied policy with the text of its files.
type policyText struct {
	appliedPolicy
	Files []keptFile `json:"files"`
}

func (a *app) policyShow() *cobra.Command {
	return &cobra.Command{
		Use: "show [DIGEST]", Short: "Print the policy in use, or one that was",
		Long: `Print the files of the policy in use, or of one that was applied before: DIGEST is the beginning of that of its files,
as apply printed it, or of its rules, as receipts have it.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := wire.Query{Verb: "policy.show"}
			if len(args) == 1 {
				q.Args = map[string]any{"digest": args[0]}
			}
			return look(cmd.Context(), a, q, func(p policyText) {
				for _, f := range p.Files {
					fmt.Fprintf(a.stdout, "// ---- %s\n%s\n", visible(f.Name), terminal.JSON(f.Text))
				}
			})
		},
	}
}

// show is a query: it returns the files of a policy.
func (r *rulebook) show(_ context.Context, q wire.Query, _ bailey.Call) (any, error) {
	out := policyText{appliedPolicy: r.Applied()}
	files := r.now.Load().files
	if digest := text(q.Args, "digest"); digest != "" {
		var err error
		if digest, err = r.named(digest); err == nil {
			files, err = r.kept(digest)
		}
		if err != nil {
			return nil, err
		}
		out.appliedPolicy = appliedPolicy{Digest: digest}
	} else if out.Dir == "" {
		files = withStarterTests(files)
	}
	for _, s := range files.all() {
		out.Files = append(out.Files, keptFile{s.Name, string(s.Text)})
	}
	return out, nil
}

// withStarterTests adds tests and budgets to the built-in rules, as a starting point.
func withStarterTests(f policyFiles) policyFiles {
	f.Tests = append(f.Tests, policy.StarterTests())
	f.Budgets = append(f.Budgets, policy.StarterBudgets())
	return f
}
