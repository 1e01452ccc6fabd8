package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"bailey/internal/ledger"
)

// direct implements the interface of the command line for work without the gateway.
type direct struct{}

func (direct) add(a *app, root *cobra.Command) {
	root.AddCommand(a.auditVerb(), a.gatewayVerb(), a.jailVerb(), a.wrapVerb(), a.doctorVerb())
	subcommand(root, "pack").AddCommand(a.packOnboardVerb())
	subcommand(root, "hooks").AddCommand(a.hooksTest(), a.hooksRun(), a.hooksExec())
}

// subcommand returns the command of that name.
func subcommand(root *cobra.Command, name string) *cobra.Command {
	for _, c := range root.Commands() {
		if c.Name() == name {
			return c
		}
	}
	return root
}

func (direct) begun(dir string) bool { return ledger.Begun(dir) }

func (direct) ledger(a *app, dir string, copied bool) (receiptReader, error) {
	open := ledger.OpenReader
	if copied {
		open = ledger.OpenCopy
	}
	r, err := open(dir)
	if err != nil {
		return nil, err
	}
	if r.Progress = a.progress("reading the ledger"); copied && r.Rest > 0 {
		fmt.Fprintf(a.stderr, "bailey: the last %d bytes are no whole line and are left out: bailey audit verify tells more\n", r.Rest)
	}
	return r, nil
}

func (direct) verify(ctx context.Context, a *app) error { return a.verify(ctx, verifying{}, nil) }
