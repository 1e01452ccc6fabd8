package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"bailey/internal/localapi/apitype"
	"bailey/internal/receipts"
	"bailey/internal/terminal"
)

func (a *App) forgetVerb() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "forget RECEIPT", Short: "Remove what is kept of a call beside the ledger",
		Long: `Remove the long arguments and the output that are kept of a call, and the salts of their commitments. The
receipt stays, with their lengths; that they were forgotten, and by whom, is an entry of the ledger, which
verifies as before. Nobody can tell any more what they were, and nobody can bring them back.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey receipts forget r-…",
		Args:    OneArg("a receipt, as in: bailey receipts forget r-…"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.forget(cmd.Context(), args[0], yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *App) forget(ctx context.Context, id string, yes bool) error {
	op, err := a.Operator("receipts forget", yes)
	if err != nil {
		return err
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	if !yes {
		if err := a.Confirm(ctx, "Forget what is kept of "+terminal.CutLine(id)+", for ever?"); err != nil {
			return err
		}
	}
	var f receipts.Forgotten
	if err := Command(ctx, c, op, apitype.ForgetCommand, map[string]any{"id": id}, &f); err != nil {
		return err
	}
	if a.JSON {
		return a.Print(f)
	}
	fmt.Fprintf(a.Stdout, "forgotten of %s: %s\n", f.Receipt, strings.Join(f.Parts, ", "))
	return nil
}
