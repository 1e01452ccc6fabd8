package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/terminal"
	"bailey/pack"
)

func (a *App) packList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The packs there are, and what is wrong with them", Args: cobra.NoArgs,
		Long: `List the packs that ship with Bailey and those that are installed, with version, who signed them and what is wrong: every
bundle is verified for it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Query(cmd.Context(), a, localapi.Query{Verb: apitype.PacksQuery}, a.packLines)
		},
	}
}

func (a *App) packLines(l apitype.PackRows) {
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	for _, p := range l.Packs {
		from := p.Source
		if p.Key != "" {
			from += ", " + p.Key
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", terminal.TableCell(p.Name), terminal.TableCell(p.Version), from, apitype.Counts(p.Capabilities, "capability"), terminal.TableCell(p.Description))
		if p.File != "" {
			fmt.Fprintf(w, "\t\t%s\n", terminal.TableCell(p.File))
		}
	}
	w.Flush()
	for _, f := range l.Findings {
		fmt.Fprintf(a.Stdout, "FINDING: %s\n  → %s\n", terminal.Shown(f.Text), terminal.Shown(f.Cure))
	}
}

func (a *App) packShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "One pack and what it can do",
		Example: "  bailey pack show git",
		Args:    OneArg("a pack, as in: bailey pack show git"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return Query(cmd.Context(), a, localapi.Query{Verb: apitype.PackQuery, Args: map[string]any{"name": args[0]}}, func(p apitype.PackShown) {
				a.packLines(apitype.PackRows{Packs: []packstore.Row{p.Row}})
				if p.Finding != "" {
					fmt.Fprintln(a.Stdout, "FINDING: "+terminal.Shown(p.Finding))
				}
				w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
				for _, c := range p.Tools {
					fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\n", c.ID, c.SideEffect, c.Reversibility, terminal.TableCell(c.Command), terminal.TableCell(strings.Join(c.Egress, " ")), terminal.TableCell(c.Description))
				}
				w.Flush()
			})
		},
	}
}

func (a *App) packDiscover() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "discover [WORD...]", Short: "Find packs by what they are for",
		Long: `Find the packs whose name, description or capabilities have all the words: those that ship with Bailey, those that are
installed, and with --dir the bundles in a directory, as bailey pack publish fills one. Nothing is fetched.`,
		Example: "  bailey pack discover commit\n  bailey pack discover --dir /srv/packs",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.discover(cmd.Context(), args, dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "a `directory` with bundles")
	return cmd
}

// discover searches the directory from the process of the user. Only the installed packs come from the gateway.
func (a *App) discover(ctx context.Context, words []string, dir string) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	words = strings.Fields(strings.Join(words, " "))
	var found apitype.PackRows
	if err := c.Look(ctx, localapi.Query{Verb: apitype.PacksQuery, Args: map[string]any{"words": strings.Join(words, " ")}}, &found); err != nil {
		return err
	}
	if dir != "" {
		keys, err := a.keysFor(ctx, "")
		if err != nil {
			return err
		}
		bundles(&found, dir, words, keys)
	}
	if a.JSON {
		return a.Print(found)
	}
	a.packLines(found)
	return nil
}

// bundles adds the bundles of a directory, each verified. A bundle that is not signed by a trusted key becomes a
// finding.
func bundles(found *apitype.PackRows, dir string, words []string, keys []pack.Key) {
	for _, e := range packstore.NamesIn(dir) {
		file := filepath.Join(dir, e)
		if filepath.Ext(e) != ".baileypack" {
			continue
		}
		v, _, err := packstore.ReadAt(file, false, keys)
		var p *pack.Pack
		if err == nil {
			p, err = v.Pack(e)
		}
		if err != nil {
			found.Findings = append(found.Findings, packstore.Finding{File: file, Text: file + ": " + err.Error(), Cure: bailey.HintOf(err)})
			continue
		}
		if r := packstore.NewRow(p, packstore.BundledPack, packstore.Installed{Digest: v.Digest, Key: v.Key}); r.Says(words) {
			r.File = file
			found.Packs = append(found.Packs, r)
		}
	}
}
