package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"bailey/internal/wire"

	"github.com/spf13/cobra"

	"bailey"
)

const packCompareLook = "pack.compare"

func (a *app) packInstall() *cobra.Command {
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

func (a *app) installPack(ctx context.Context, query map[string]any, yes bool) error {
	op, err := a.operator("pack install", yes)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	var p packProposal
	if err := c.Look(ctx, wire.Query{Verb: packCompareLook, Args: query}, &p); err != nil {
		return err
	}
	if p.Differs {
		if !yes || !a.json {
			fmt.Fprint(a.dialog(), p.words())
		}
		if !yes {
			if err := a.confirm(ctx, "Install this?"); err != nil {
				return err
			}
		}
		query["digest"], query["base"] = p.Digest, ""
		if p.Was != nil {
			query["base"] = p.Was.Digest
		}
		if err := act(ctx, c, op, packInstallEvent, query, &p); err != nil {
			return err
		}
	}
	switch {
	case a.json:
		return a.print(p)
	case !p.Changed:
		fmt.Fprintf(a.stdout, "nothing changes: %s %s is installed\n", p.Name, p.Version)
	default:
		fmt.Fprintf(a.stdout, "installed: %s %s, in use from the next call on\n", p.Name, p.Version)
	}
	return nil
}

func (p packProposal) words() string {
	var b strings.Builder
	by := "signed by " + p.Key
	if p.Dev {
		by = "unsigned"
	}
	fmt.Fprintf(&b, "%s %s, %s, %s, digest %s\n", p.Name, p.Version, counts(p.Capabilities, "capability"), by, p.Digest)
	if p.Was != nil {
		fmt.Fprintf(&b, "in place of %s, digest %s\n", p.Was.Version, p.Was.Digest)
	}
	b.WriteString(changeLines(p.Changes))
	if len(p.Changes) == 0 {
		b.WriteString("  it may do nothing that what is installed could not\n")
	}
	for _, w := range p.Loud {
		whole(&b, '!', w)
	}
	return b.String()
}

func (a *app) packUninstall() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "uninstall NAME", Short: "Take a pack out",
		Long: `Take the pack NAME out and remove its bundle. Which version was the newest is remembered.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey pack uninstall demo",
		Args:    oneArg("a pack's name, as in: bailey pack uninstall demo"),
		RunE: func(cmd *cobra.Command, args []string) error {
			op, err := a.operator("pack uninstall", yes)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			if !yes {
				if err := a.confirm(cmd.Context(), "Uninstall "+visible(args[0])+"?"); err != nil {
					return err
				}
			}
			var was installedPack
			if err := act(cmd.Context(), c, op, packUninstallEvent, map[string]any{"name": args[0]}, &was); err != nil {
				return err
			}
			if a.json {
				return a.print(map[string]any{"ok": true, "changed": true, "name": was.Name, "version": was.Version})
			}
			fmt.Fprintf(a.stdout, "uninstalled: %s %s\n", was.Name, was.Version)
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
