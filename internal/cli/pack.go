package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

func (a *App) packVerb() *cobra.Command {
	var yes bool
	repin := &cobra.Command{
		Use: "repin CAPABILITY", Short: "Accept a tool that has changed",
		Long: `Accept the programs of a capability as they are now.

A program that others than root can write is compared with what it was at its first call. Once it is another,
each call that would run it asks for an approval, until this verb says that the change was meant. It shows the
old and the new digest, and asks.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey pack repin git.status",
		Args:    OneArg("a capability, as in: bailey pack repin git.status"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.repin(cmd.Context(), args[0], yes)
		},
	}
	repin.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd := &cobra.Command{Use: "pack", Short: "What capabilities are made of"}
	cmd.AddCommand(a.packList(), a.packShow(), a.packDiscover(), a.packValidate(), a.packScaffold(), a.packBundle(), a.packKeygen(), a.packSign(), a.packVerify(), a.packDiff(),
		a.packTrust(), a.packUntrust(), a.packInstall(), a.packUninstall(), a.packPublish(), repin)
	return cmd
}

// repin shows the changes, asks, and accepts them.
func (a *App) repin(ctx context.Context, id string, yes bool) error {
	op, err := a.Operator("pack repin", yes)
	if err != nil {
		return err
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	var seen apitype.Changed
	if err := c.Look(ctx, localapi.Query{Verb: "changes", Args: map[string]any{"id": id}}, &seen); err != nil {
		return err
	}
	if len(seen.Programs) > 0 {
		if !yes || !a.JSON {
			for _, p := range seen.Programs {
				fmt.Fprintf(a.Dialog(), "%s, which others than root can write\n  - %s\n  + %s\n", terminal.CutLine(p.Path), p.Was, p.SHA256)
			}
		}
		if !yes {
			if err := a.Confirm(ctx, "Accept this?"); err != nil {
				return err
			}
		}
		shown, err := json.Marshal(seen.Programs)
		if err != nil {
			return err
		}
		if err := Command(ctx, c, op, apitype.RepinCommand, map[string]any{"id": id, "shown": string(shown)}, &seen); err != nil {
			return err
		}
	}
	switch {
	case a.JSON:
		return a.Print(seen)
	case !seen.Changed:
		fmt.Fprintln(a.Stdout, "nothing changes: its programs are what they were")
	default:
		fmt.Fprintf(a.Stdout, "%s runs it as it is now\n", seen.Capability)
	}
	return nil
}
