package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"bailey/internal/policyfiles"
	"bailey/internal/terminal"
)

func (a *App) policyTextVerb() *cobra.Command {
	return &cobra.Command{
		Use: "text [DIR]", Short: "Print what is signed of a policy",
		Long: `Print the line that stands for the policy in DIR, or in $BAILEY_HOME/policy: the digest of its files. Who signs it
signs them all.`,
		Example: "  bailey policy text | ssh-keygen -Y sign -n policy@bailey -f ~/.ssh/id_ed25519 > policy.sig\n  bailey policy apply --signature policy.sig",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := a.checkPolicy(args)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Print(c)
			}
			_, err = a.Stdout.Write(policyfiles.SignedText(c.Digest))
			return err
		},
	}
}

// signerChange describes a change of the trusted signers, for the difference that init shows.
func signerChange(old, now []string) string {
	words := terminal.Diff(signerLines(old), signerLines(now))
	if len(old) > 0 && len(now) == 0 {
		words += "  ! a policy needs no signature any more\n"
	}
	return words
}

func signerLines(signers []string) string {
	var b strings.Builder
	for _, s := range signers {
		fmt.Fprintf(&b, "policy signer %s\n", s)
	}
	return b.String()
}
