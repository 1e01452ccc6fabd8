package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/policyfiles"
	"bailey/internal/terminal"
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

func (a *App) policyCheck() *cobra.Command {
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
			if a.JSON {
				return a.Print(c)
			}
			_, err = fmt.Fprintf(a.Stdout, "%s: %s, %s passed, %s; policy %.12s (files %.12s)\n", terminal.CutLine(c.Dir), apitype.Counts(c.Rules, "rule"), apitype.Counts(c.Tests, "test"), apitype.Counts(c.Budgets, "budget"), c.Policy, c.Digest)
			return err
		},
	}
}

func (a *App) checkPolicy(args []string) (c checked, err error) {
	home, err := localapi.FindHome()
	if err != nil {
		return c, err
	}
	if c.Dir, err = policyDirOf(home, args); err != nil {
		return c, err
	}
	files, err := policyfiles.ReadDir(c.Dir)
	if err != nil {
		return c, err
	}
	catalog, err := packstore.BuiltIn()
	if err != nil {
		return c, err
	}
	e, err := policyfiles.Load(files, catalog, policyfiles.Actions(catalog))
	if err != nil {
		return c, err
	}
	c.OK, c.Digest, c.Policy = true, files.Digest(), e.Engine.Digest()
	c.Rules, c.Tests, c.Budgets = e.Engine.Len(), e.Tests, len(e.Budgets)
	return c, nil
}

func (a *App) policyInit() *cobra.Command {
	return &cobra.Command{
		Use: "init [DIR]", Short: "Write the policy in use into files, to begin with",
		Long: `Write the policy in use into DIR, or into $BAILEY_HOME/policy, which must not hold one: the rules, their tests, and
budgets as comments. Nothing changes until "bailey policy apply".`,
		Example: "  bailey policy init\n  bailey policy check\n  bailey policy apply",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Client()
			if err != nil {
				return err
			}
			dir, err := policyDirOf(c.Home, args)
			if err != nil {
				return err
			}
			var now apitype.PolicyText
			if err := c.Look(cmd.Context(), localapi.Query{Verb: "policy.show"}, &now); err != nil {
				return err
			}
			names, err := writePolicy(dir, now.Files)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Print(map[string]any{"ok": true, "dir": dir, "files": names})
			}
			_, err = fmt.Fprintf(a.Stdout, "wrote %s into %s; change them, then bailey policy check and bailey policy apply\n", apitype.List(names), terminal.CutLine(dir))
			return err
		},
	}
}

// writePolicy writes all files or none. It never overwrites a policy.
func writePolicy(dir string, files []apitype.KeptFile) (names []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if old, err := policyfiles.ReadDir(dir); err == nil || len(old.All()) > 0 {
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

func (a *App) policyShow() *cobra.Command {
	return &cobra.Command{
		Use: "show [DIGEST]", Short: "Print the policy in use, or one that was",
		Long: `Print the files of the policy in use, or of one that was applied before: DIGEST is the beginning of that of its files,
as apply printed it, or of its rules, as receipts have it.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := localapi.Query{Verb: "policy.show"}
			if len(args) == 1 {
				q.Args = map[string]any{"digest": args[0]}
			}
			return Query(cmd.Context(), a, q, func(p apitype.PolicyText) {
				for _, f := range p.Files {
					fmt.Fprintf(a.Stdout, "// ---- %s\n%s\n", terminal.CutLine(f.Name), terminal.JSON(f.Text))
				}
			})
		},
	}
}
