package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/sshsig"
)

// signatureNamespace prevents the use of a policy's signature for any other purpose.
const signatureNamespace = "policy@bailey"

// signedText returns the text that is signed for a policy: the digest of its files.
func signedText(digest string) []byte { return []byte("bailey policy " + digest + "\n") }

func (a *app) policyTextVerb() *cobra.Command {
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
			if a.json {
				return a.print(c)
			}
			_, err = a.stdout.Write(signedText(c.Digest))
			return err
		},
	}
}

// signer returns the signer of a policy. It returns nil if no signature is given and none is required.
func signer(digest, signature string, trusted []string) (*policySigner, error) {
	if signature == "" && len(trusted) == 0 {
		return nil, nil
	}
	if signature == "" {
		return nil, &bailey.Error{Kind: bailey.Denied, Message: gateway.SettingsName + " names policySigners, and this policy is not signed",
			Hint: "bailey policy text DIR | ssh-keygen -Y sign -n " + signatureNamespace + " -f KEY > FILE, then bailey policy apply DIR --signature FILE"}
	}
	if len(trusted) == 0 {
		return nil, &bailey.Error{Kind: bailey.Denied, Message: "nobody is trusted to sign a policy", Hint: "name keys under policySigners in " + gateway.SettingsName + ", then bailey init --apply; or apply without --signature"}
	}
	keys, err := sshsig.ParseKeys([]byte(strings.Join(trusted, "\n")))
	if err != nil {
		return nil, err
	}
	by, err := sshsig.Verify(signedText(digest), []byte(signature), signatureNamespace, keys)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.KindOf(err), Message: "the policy's signature", Err: err, Hint: bailey.HintOf(err)}
	}
	return &policySigner{Name: by.Name, Key: by.Key, Touch: by.Touch}, nil
}

// signerChange describes a change of the trusted signers, for the difference that init shows.
func signerChange(old, now []string) string {
	words := difference(signerLines(old), signerLines(now))
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
