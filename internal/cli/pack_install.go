package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/terminal"
)

func (a *App) packInstall() *cobra.Command {
	var yes, downgrade bool
	var dev string
	cmd := &cobra.Command{
		Use: "install BUNDLE | --dev DIR", Short: "Install a pack, after showing what it may do",
		Long: `Install a pack from BUNDLE, which a key has to have signed that bailey pack trust trusts. It shows what the pack may do that
the installed version could not, and asks. The bundle is kept as it is and verified again each time it is loaded. A version
older than any that was ever installed, or another of the same version, is refused without --downgrade.

With --dev DIR it is a directory of your own, as its files are now: nobody signed it, each receipt of it says dev, and a
file that changes counts once it is installed again.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey pack install demo-1.0.0.baileypack\n  bailey pack install --dev ./demo",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || (len(args) == 1) == (dev != "") {
				return &bailey.Error{Kind: bailey.Invalid, Message: "install wants a bundle, or --dev and a directory", Hint: "as in: bailey pack install demo-1.0.0.baileypack"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path := strings.Join(append(args, dev), "")
			path, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			return a.installPack(cmd.Context(), map[string]any{"path": path, "dev": dev != "", "downgrade": downgrade}, yes)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&yes, "yes", false, "do not ask")
	f.BoolVar(&downgrade, "downgrade", false, "though a newer version was installed before")
	f.StringVar(&dev, "dev", "", "a pack's `directory` of your own, unsigned")
	return cmd
}

func (a *App) installPack(ctx context.Context, query map[string]any, yes bool) error {
	op, err := a.Operator("pack install", yes)
	if err != nil {
		return err
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	var p apitype.PackProposal
	if err := c.Look(ctx, localapi.Query{Verb: apitype.PackCompareQuery, Args: query}, &p); err != nil {
		return err
	}
	if p.Differs {
		if !yes || !a.JSON {
			fmt.Fprint(a.Dialog(), p.Summary())
		}
		if !yes {
			if err := a.Confirm(ctx, "Install this?"); err != nil {
				return err
			}
		}
		query["digest"], query["base"] = p.Digest, ""
		if p.Was != nil {
			query["base"] = p.Was.Digest
		}
		if err := Command(ctx, c, op, packstore.PackInstallEvent, query, &p); err != nil {
			return err
		}
	}
	switch {
	case a.JSON:
		return a.Print(p)
	case !p.Changed:
		fmt.Fprintf(a.Stdout, "nothing changes: %s %s is installed\n", p.Name, p.Version)
	default:
		fmt.Fprintf(a.Stdout, "installed: %s %s, in use from the next call on\n", p.Name, p.Version)
	}
	return nil
}

func (a *App) packUninstall() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "uninstall NAME", Short: "Take a pack out",
		Long: `Take the pack NAME out and remove its bundle. Which version was the newest is remembered.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey pack uninstall demo",
		Args:    OneArg("a pack's name, as in: bailey pack uninstall demo"),
		RunE: func(cmd *cobra.Command, args []string) error {
			op, err := a.Operator("pack uninstall", yes)
			if err != nil {
				return err
			}
			c, err := a.Client()
			if err != nil {
				return err
			}
			if !yes {
				if err := a.Confirm(cmd.Context(), "Uninstall "+terminal.CutLine(args[0])+"?"); err != nil {
					return err
				}
			}
			var was packstore.Installed
			if err := Command(cmd.Context(), c, op, packstore.PackUninstallEvent, map[string]any{"name": args[0]}, &was); err != nil {
				return err
			}
			if a.JSON {
				return a.Print(map[string]any{"ok": true, "changed": true, "name": was.Name, "version": was.Version})
			}
			fmt.Fprintf(a.Stdout, "uninstalled: %s %s\n", was.Name, was.Version)
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
