package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policy/review"
	"bailey/internal/policyfiles"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

func (a *App) policyVerb() *cobra.Command {
	var inputs []string
	explain := &cobra.Command{
		Use: "explain CAPABILITY [-i key=value]... | RECEIPT", Short: "Explain the decision about a call",
		Long: `Show how a call would be decided, by which rules, and what would change the decision. For a
receipt: show what was decided, and how the current policy would decide the same call.`,
		Example: "  bailey policy explain git.log -i repo=.\n  bailey policy explain r-…",
		Args:    OneArg("a capability or a receipt"),
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := apitype.ParseInputs(inputs)
			if err != nil {
				return err
			}
			if id := bailey.ReceiptID(args[0]); apitype.Possible(id) {
				return a.explainReceipt(cmd.Context(), id, len(inputs) > 0)
			}
			call := localapi.CallQuery{Capability: bailey.CapabilityID(args[0]), Input: input, Text: true}
			return Show(cmd.Context(), a, apitype.ExplainCall, call,
				func(w io.Writer, e review.Explanation) { fmt.Fprintln(w, e) })
		},
	}
	explain.Flags().StringArrayVarP(&inputs, "input", "i", nil, "an input, `key=value`; may be repeated")
	return GroupVerb("policy", "Check, apply and explain policy", "",
		explain, a.policyInit(), a.policyStart(), a.policyCheck(), a.policyApply(), a.policyShow(), a.policyTextVerb(),
		a.policyReplay(), a.policySuggest(), a.policyImport())
}

func (a *App) policyApply() *cobra.Command {
	var starter bool
	var signature string
	cmd := &cobra.Command{
		Use: "apply [DIR]", Short: "Show what a policy changes, and apply it",
		Long: `Apply the policy in DIR, or in $BAILEY_HOME/policy, from the next call on.

DIR is the complete policy: rules that are not in it do not apply. The command shows the changes in meaning
and in text, and asks for confirmation. A faulty policy, or a failing test, changes nothing. The applied
policy stays in use if the files change later; status and doctor report the difference.

With --signature FILE the policy must be signed, by a key that settings.yaml names under policySigners:

  bailey policy text DIR | ssh-keygen -Y sign -n policy@bailey -f KEY > FILE`,
		Example: "  bailey policy apply\n  bailey policy apply ./rules\n  bailey policy apply --starter",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if starter && len(args) > 0 {
				return bailey.Invalid.New("--starter takes no directory", "bailey policy apply --help")
			}
			return a.applyPolicy(cmd.Context(), args, starter, signature)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&starter, "starter", false, "return to the built-in policy")
	f.StringVar(&signature, "signature", "", "a detached SSH signature of the policy, a `file`")
	return a.OperatorVerb(cmd)
}

func (a *App) applyPolicy(ctx context.Context, args []string, starter bool, signature string) error {
	_, c, err := a.OperatorClient("policy apply")
	if err != nil {
		return err
	}
	var r apitype.PolicyRequest
	if !starter {
		if r.Dir, err = policyDirOf(c.Home, args); err != nil {
			return err
		}
	}
	if signature != "" {
		if r.Signature, err = readSignature(signature, policyfiles.SignatureNamespace); err != nil {
			return err
		}
	}
	return propose(ctx, a, "policy apply", "Apply this?", apitype.ComparePolicy, r, apitype.ApplyPolicy,
		func(p apitype.Proposed) (bool, string, *apitype.PolicyRequest) {
			r.Digest, r.Base = p.Digest, p.Applied.Digest
			return p.Differs, p.Summary(), changeIf(p.Differs, r)
		}, func(p apitype.Proposed) string {
			if !p.Changed {
				return "nothing to do: this policy is in use"
			}
			return fmt.Sprintf("applied: %s in use from the next call on, policy %.12s (files %.12s)",
				apitype.Counts(p.Rules, "rule"), p.Policy, p.Digest)
		})
}

// policyDirOf returns the directory in args, or the default one of the home, as an absolute path.
func policyDirOf(home localapi.Home, args []string) (string, error) {
	switch {
	case len(args) == 0:
		return filepath.Join(string(home), "policy"), nil
	case args[0] == "":
		return "", bailey.Invalid.New("the name of the policy directory is empty",
			"leave it out for "+filepath.Join(string(home), "policy"))
	}
	return filepath.Abs(args[0])
}

func readSignature(name, namespace string) (string, error) {
	text, err := safefile.ReadNamed(name, 64<<10)
	if err != nil {
		return "", bailey.Invalid.Wrap(err, "cannot read the signature", "create it with ssh-keygen -Y sign -n "+namespace)
	}
	return string(text), nil
}

func (a *App) explainReceipt(ctx context.Context, id bailey.ReceiptID, inputs bool) error {
	if inputs {
		return bailey.Invalid.New("-i cannot be used with a receipt", "leave -i out, or name a capability")
	}
	if err := a.requireLedger(); err != nil {
		return err
	}
	return a.withSlowNotice(func() error {
		return Show(ctx, a, apitype.ReconsiderReceipt, apitype.ID{ID: string(id)},
			func(w io.Writer, r apitype.Reconsidered) { fmt.Fprintln(w, r) })
	})
}

// writeRules writes rules for review into a new file and returns its path. This is out, if it ends in .cedar, else the
// file name in the directory out, which is created if necessary. Existing files are not overwritten.
func writeRules(out, name string, text []byte) (string, error) {
	file := out
	if !strings.HasSuffix(out, ".cedar") {
		if err := os.Mkdir(out, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", bailey.Unavailable.Wrapf(err, "name a directory whose parent exists, or a file *.cedar",
				"cannot create directory %s", terminal.Shown(out))
		}
		file = filepath.Join(out, name)
	}
	err := safefile.Create(file, text, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return "", bailey.Conflict.Errorf("name another file, or move that one away: files are not overwritten",
			"%s already exists", terminal.Shown(file))
	case err != nil:
		return "", bailey.Unavailable.Wrapf(err, "", "cannot write %s", terminal.Shown(file))
	}
	return file, nil
}

// giveRules writes rules to out or, if out is empty, to standard output, and then prints a summary as text or JSON.
func (a *App) giveRules(out, name string, text []byte, said func(file string) any, inWords func()) error {
	file := ""
	if out != "" {
		var err error
		if file, err = writeRules(out, name, text); err != nil {
			return err
		}
	}
	return PrintAnswer(a, said(file), func(w io.Writer, _ any) {
		if file == "" {
			w.Write(text)
		}
		inWords()
		if file != "" {
			fmt.Fprintf(w, "written: %s\nreview it, then: bailey policy check DIR, and bailey policy apply DIR\n",
				terminal.Shown(file))
		}
	})
}

// policyCheckResult is the result of a successful `policy check`.
type policyCheckResult struct {
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
		Use: "check [DIR]", Aliases: []string{"test"}, Short: "Check a policy and run its tests",
		Long: `Load the policy in DIR, or in $BAILEY_HOME/policy, as apply would, and run the tests beside its
rules. Nothing takes effect, and no gateway is needed. bailey policy test is the same command.`,
		Example: "  bailey policy check\n  bailey policy check ./rules",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := a.checkPolicy(args)
			if err != nil {
				return err
			}
			return a.PrintLine(c, "%s: %s, %s passed, %s; policy %.12s (files %.12s)\n", terminal.CutLine(c.Dir),
				apitype.Counts(c.Rules, "rule"), apitype.Counts(c.Tests, "test"), apitype.Counts(c.Budgets, "budget"),
				c.Policy, c.Digest)
		},
	}
}

func (a *App) checkPolicy(args []string) (c policyCheckResult, err error) {
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
	catalog, err := a.installedCatalog()
	if err != nil {
		return c, err
	}
	e, err := policyfiles.Load(files, catalog)
	if err != nil {
		return c, err
	}
	c.OK, c.Digest, c.Policy = true, files.Digest(), e.Engine.Digest()
	c.Rules, c.Tests, c.Budgets = e.Engine.Len(), e.Tests, len(e.Budgets)
	return c, nil
}

func (a *App) policyInit() *cobra.Command {
	return &cobra.Command{
		Use: "init [DIR]", Short: "Write the policy in use to files that you can edit",
		Long: `Write the policy in use into DIR, or into $BAILEY_HOME/policy, which must not contain one: the
rules, their tests, and budgets as comments. Nothing changes until "bailey policy apply".`,
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
			now, err := apitype.ShowPolicy.Ask(cmd.Context(), c, apitype.PolicyName{})
			if err != nil {
				return err
			}
			names, err := writePolicy(dir, now.Files)
			if err != nil {
				return err
			}
			return a.PrintLine(map[string]any{"ok": true, "dir": dir, "files": names},
				"wrote %s into %s; edit them, then run bailey policy check and bailey policy apply\n", apitype.List(names),
				terminal.CutLine(dir))
		},
	}
}

func (a *App) policyStart() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "start NAME", Short: "Apply a policy to begin with: look, work or push",
		Long: `Write one of three policies into $BAILEY_HOME/policy, which must not contain one, show what it changes, and apply it after
your confirmation:

  ` + strings.Join(policyfiles.DescribeStartings(), "\n  ") + `

Edit the files later as you like, or add rules with bailey allow.`,
		Example: "  bailey policy start work",
		Args:    OneArg("look, work or push"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.startPolicy(cmd.Context(), args[0]) },
	})
}

func (a *App) startPolicy(ctx context.Context, name string) error {
	_, c, err := a.OperatorClient("policy start")
	if err != nil {
		return err
	}
	files, err := policyfiles.Starting(name, a.Bare)
	if err != nil {
		return err
	}
	dir := c.Home.Path("policy")
	if _, err := policyfiles.ReadDir(dir); bailey.KindOf(err) != bailey.NotFound {
		return bailey.Conflict.New(dir+" already has a policy", "move it away first, or add rules to it with bailey allow")
	}
	undo, err := writeStarting(dir, files)
	if err != nil {
		return err
	}
	if err := a.applyPolicy(ctx, []string{dir}, false, ""); err != nil {
		return errors.Join(err, undo())
	}
	return nil
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
		return nil, bailey.Conflict.New(dir+" already has a policy",
			"edit that one, or name another directory")
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
			return nil, bailey.Unavailable.Wrap(err, filepath.Join(dir, f.Name)+" cannot be written",
				"name another directory")
		}
		names = append(names, f.Name)
	}
	return names, nil
}

func (a *App) policyShow() *cobra.Command {
	return QueryVerb(a, &cobra.Command{
		Use: "show [DIGEST]", Short: "Print the policy in use, or an earlier one",
		Long: `Print the files of the policy in use, or of one that was applied before: DIGEST is a prefix of the
digest of its files, as apply printed it, or of its rules, as in receipts.`,
		Args: cobra.MaximumNArgs(1),
	}, apitype.ShowPolicy, func(args []string) (apitype.PolicyName, error) {
		return apitype.PolicyName{Digest: strings.Join(args, "")}, nil
	}, func(w io.Writer, p apitype.PolicyText) {
		for _, f := range p.Files {
			fmt.Fprintf(w, "// ---- %s\n%s\n", terminal.CutLine(f.Name), terminal.JSON(f.Text))
		}
	})
}

func (a *App) policyTextVerb() *cobra.Command {
	return &cobra.Command{
		Use: "text [DIR]", Short: "Print the text of a policy that is signed",
		Long: `Print the line that represents the policy in DIR, or in $BAILEY_HOME/policy: the digest of its
files. A signature of it covers all of them.`,
		Example: "  bailey policy text | ssh-keygen -Y sign -n policy@bailey -f ~/.ssh/id_ed25519 > policy.sig\n  bailey policy apply --signature policy.sig",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := a.checkPolicy(args)
			if err != nil {
				return err
			}
			return a.PrintLine(c, "%s", policyfiles.SignedText(c.Digest))
		},
	}
}
