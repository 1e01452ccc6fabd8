package direct

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"bailey/internal/broker/process"
	"bailey/internal/cli"
)

// brokerVerb is the group of commands for the table of bailey-broker. They work on its directory, as its own user.
func (a *commands) brokerVerb() *cobra.Command {
	c := &process.Command{}
	leases := func(verb, short, long string) *cobra.Command {
		return a.brokerCommand(c, verb, verb+" [LEASE]...", short, long, cobra.ArbitraryArgs)
	}
	revoke := leases("revoke", "End open loans now",
		`End the open loans with the named leases, or with --all every loan. Each credential is revoked at its issuer, if the
issuer can. The calls continue without it. To end new loans too, remove the lease from broker.yaml.`)
	revoke.Flags().BoolVar(&c.All, "all", false, "end every open loan")
	cmd := cli.GroupVerb("broker", "Manage the credentials that bailey-broker lends",
		`Manage the table of bailey-broker, which lends credentials to calls. These commands work on the directory of the
broker, and only its own user may use them; see docs/broker.md.`,
		a.brokerAddVerb(c), revoke,
		a.brokerCommand(c, "list", "list", "Show the running broker and its leases",
			"Show the broker that serves the directory, its leases, and what they allow beyond the needs of a call.", cobra.NoArgs),
		leases("test", "Ask the source of each lease for a value, and revoke it at once",
			"Ask the source of each lease in broker.yaml for a value, and revoke it at once. The table need not be applied."),
		leases("setup", "Print what each issuer must allow",
			"Print the documents that the administrator of each issuer applies: policies, roles and permissions, and no more."))
	cmd.PersistentFlags().StringVar(&c.Dir, "dir", "",
		"`directory` of the broker; default: $BAILEY_BROKER_DIR, or bailey-broker in the user's state directory")
	return cmd
}

func (a *commands) brokerAddVerb(c *process.Command) *cobra.Command {
	cmd := a.brokerCommand(c, "add", "add LEASE ADAPTER [KEY=VALUE]...",
		"Try a new lease, and write it into broker.yaml",
		`Ask for the keys that a new lease needs, try its source, and write it into broker.yaml. The broker uses it after
bailey-broker apply.`, cobra.MinimumNArgs(2))
	cmd.Example = "  bailey broker add --approval none --scope 'read web' github-token github app=Iv23liExample key=app.pem installation=7 repositories=[web] 'permissions={contents: read}'"
	f := cmd.Flags()
	f.StringVar(&c.Scope, "scope", "", "`text` that an approver reads: what the credential allows")
	f.StringVar(&c.TTL, "ttl", "", "longest `time` of a loan, for example 5m")
	f.StringVar(&c.Approval, "approval", "", "none, or the approval that a loan needs, in `YAML`")
	f.BoolVar(&c.Untested, "untested", false, "write the lease even if its source gives no value")
	return cmd
}

// brokerCommand is a command of bailey-broker. With --json there is one document: the answer, or the refusal.
func (a *commands) brokerCommand(c *process.Command, verb, use, short, long string,
	args cobra.PositionalArgs) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: args}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := a.Operator("broker " + verb); err != nil {
			return err
		}
		var out bytes.Buffer
		run := *c
		run.Verb, run.Args, run.JSON, run.Yes = verb, args, a.JSON, a.Yes
		run.Stdin, run.Stdout, run.Stderr = os.Stdin, a.Stdout, a.Stderr
		if a.JSON {
			run.Stdout = &out
		}
		if err := run.Run(cmd.Context()); err != nil {
			return err
		}
		_, err := fmt.Fprint(a.Stdout, out.String())
		return err
	}
	return a.OperatorVerb(cmd)
}
