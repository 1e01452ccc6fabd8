package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policyfiles"
)

func (a *App) policyApply() *cobra.Command {
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

func (a *App) applyPolicy(ctx context.Context, args []string, starter bool, signature string, yes bool) error {
	op, err := a.Operator("policy apply", yes)
	if err != nil {
		return err
	}
	c, err := a.Client()
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
		text, err := readSignature(signature, policyfiles.SignatureNamespace)
		if err != nil {
			return err
		}
		query["signature"] = text
	}
	var p apitype.Proposed
	if err := c.Look(ctx, localapi.Query{Verb: "policy.compare", Args: query}, &p); err != nil {
		return err
	}
	if p.Differs {
		if !yes || !a.JSON {
			fmt.Fprint(a.Dialog(), p.Summary())
		}
		if !yes {
			if err := a.Confirm(ctx, "Apply this?"); err != nil {
				return err
			}
		}
		query["digest"], query["base"] = p.Digest, p.Applied.Digest
		if err := Command(ctx, c, op, apitype.PolicyEvent, query, &p); err != nil {
			return err
		}
	}
	switch {
	case a.JSON:
		return a.Print(p)
	case !p.Changed:
		fmt.Fprintln(a.Stdout, "nothing changes: this policy is in use")
	default:
		fmt.Fprintf(a.Stdout, "applied: %s in use from the next call on, policy %.12s (files %.12s)\n", apitype.Counts(p.Rules, "rule"), p.Policy, p.Digest)
	}
	return nil
}

// policyDirOf returns the directory in args, or the default one of the home, as an absolute path.
func policyDirOf(home localapi.Home, args []string) (string, error) {
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
