// Package direct holds the commands that do their work in their own process instead of asking the gateway: they start the
// gateway or an agent in its jail, run a program in a jail, verify a ledger, or test what a machine lacks. It is apart from
// package cli so that a command that only asks the gateway links neither the jail nor the ledger.
package direct

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"bailey/internal/cli"
	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/packstore"
	"bailey/internal/server"
	"bailey/pack"
)

// Work implements [cli.Local].
type Work struct{}

// commands has the state that all commands share, and the commands of this package as methods.
type commands struct{ *cli.App }

// Add adds the commands of this package to the table of commands.
func (Work) Add(app *cli.App, root *cobra.Command) {
	a := &commands{app}
	root.AddCommand(a.auditVerb(), a.gatewayVerb(), a.jailVerb(), a.wrapVerb(), a.doctorVerb(), a.brokerVerb(), a.imageVerb())
	findSubcommand(root, "pack").AddCommand(a.packOnboardVerb())
	a.addSourceVerbs(findSubcommand(root, "source"))
	a.addSandboxVerbs(findSubcommand(root, "sandbox"))
	findSubcommand(root, "hooks").AddCommand(a.hooksTest(), a.hooksRun(), a.hooksExec())
}

// findSubcommand returns the command of that name, which must exist.
func findSubcommand(root *cobra.Command, name string) *cobra.Command {
	for _, c := range root.Commands() {
		if c.Name() == name {
			return c
		}
	}
	panic("unknown command " + name)
}

// Begun reports whether the directory holds a ledger.
func (Work) Begun(dir string) bool { return ledger.Begun(dir) }

// Ledger opens a ledger: if copied, a copy from another place, whose last line may be cut off.
func (Work) Ledger(a *cli.App, dir string, copied bool) (cli.ReceiptReader, error) {
	open := ledger.OpenReader
	if copied {
		open = ledger.OpenCopy
	}
	r, err := open(dir)
	if err != nil {
		return nil, err
	}
	if r.Progress = a.Progress("reading the ledger"); copied && r.Rest > 0 {
		fmt.Fprintf(a.Stderr, "bailey: the last %d bytes are an incomplete line and are left out: bailey audit verify tells more\n", r.Rest)
	}
	return r, nil
}

// Catalog returns the packs that a gateway of the home would use.
func (Work) Catalog(home localapi.Home) (*pack.Catalog, []packstore.Finding, error) {
	return server.InstalledCatalog(home)
}

// Verify verifies the ledger of the home and prints the verdict with what it proves.
func (Work) Verify(ctx context.Context, a *cli.App) error {
	return (&commands{a}).verifyLedger(ctx, verifyFlags{verbose: true}, nil)
}
