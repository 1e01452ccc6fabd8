package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/terminal"
	"bailey/internal/wire"
	"bailey/pack"
)

// Verbs of the queries of list and show.
const packsLook, packLook = "packs", "pack"

// Sources of a pack.
const (
	builtInPack = "built-in"
	signedPack  = "installed"
	devPack     = "dev"
	bundledPack = "bundle" // a bundle file that is not installed
)

// packRow is a pack in a list.
type packRow struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	Description  string `json:"description"`
	Source       string `json:"source"`
	Digest       string `json:"digest,omitempty"` // of the bundle
	Key          string `json:"key,omitempty"`
	File         string `json:"file,omitempty"` // of a bundle that is not installed
	Capabilities int    `json:"capabilities"`
	Finding      string `json:"finding,omitempty"` // why it is not loaded

	words string // its searchable text, in lower case
}

type packRows struct {
	Packs    []packRow     `json:"packs"`
	Findings []packFinding `json:"findings"`
}

// packShown is one pack with its capabilities.
type packShown struct {
	packRow
	Tools []capability `json:"tools"`
}

func newPackRow(p *pack.Pack, source string, in installedPack) packRow {
	words := []string{p.Name, p.Description}
	for _, c := range p.Capabilities {
		words = append(words, string(c.ID), c.Description)
	}
	return packRow{Name: p.Name, Version: p.Version, Description: p.Description, Source: source, Digest: in.Digest, Key: in.Key,
		Capabilities: len(p.Capabilities), words: strings.ToLower(strings.Join(words, "\n"))}
}

// rows returns the built-in packs and the installed packs. Each installed pack is verified now.
func (b *packBook) rows() (rows packRows, all []*pack.Pack, err error) {
	c, err := builtIn()
	if err != nil {
		return rows, nil, err
	}
	for _, p := range c.Packs() {
		rows.Packs, all = append(rows.Packs, newPackRow(p, builtInPack, installedPack{})), append(all, p)
	}
	known := b.now()
	loaded, found := installedPacks(b.home, known)
	for _, p := range loaded {
		rows.Packs, all = append(rows.Packs, newPackRow(p, sourceOf(known.Installed[p.Name]), known.Installed[p.Name])), append(all, p)
	}
	for _, f := range found {
		if in := known.Installed[f.Pack]; f.Pack != "" {
			rows.Packs, all = append(rows.Packs, packRow{Name: in.Name, Version: in.Version, Source: sourceOf(in), Digest: in.Digest, Key: in.Key, Finding: f.Text}), append(all, &pack.Pack{Name: in.Name})
		}
	}
	rows.Findings = append([]packFinding{}, found...)
	return rows, all, nil
}

func sourceOf(in installedPack) string {
	if in.Dev {
		return devPack
	}
	return signedPack
}

// list is a query: it returns all packs, or those that contain all the words.
func (b *packBook) list(_ context.Context, q wire.Query, _ bailey.Call) (any, error) {
	rows, _, err := b.rows()
	words := strings.Fields(text(q.Args, "words"))
	rows.Packs = slices.DeleteFunc(rows.Packs, func(p packRow) bool { return !p.says(words) })
	return rows, err
}

func (b *packBook) show(_ context.Context, q wire.Query, _ bailey.Call) (any, error) {
	rows, all, err := b.rows()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(p *pack.Pack) bool { return p.Name == text(q.Args, "name") })
	if i < 0 {
		return nil, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("there is no pack %q", text(q.Args, "name")), Hint: "bailey pack list"}
	}
	out := packShown{rows.Packs[i], []capability{}}
	for _, m := range all[i].Capabilities {
		out.Tools = append(out.Tools, newCapability(m, true))
	}
	return out, nil
}

func (a *app) packList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The packs there are, and what is wrong with them", Args: cobra.NoArgs,
		Long: `List the packs that ship with Bailey and those that are installed, with version, who signed them and what is wrong: every
bundle is verified for it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return look(cmd.Context(), a, wire.Query{Verb: packsLook}, a.packLines)
		},
	}
}

func (a *app) packLines(l packRows) {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, p := range l.Packs {
		from := p.Source
		if p.Key != "" {
			from += ", " + p.Key
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", cell(p.Name), cell(p.Version), from, counts(p.Capabilities, "capability"), cell(p.Description))
		if p.File != "" {
			fmt.Fprintf(w, "\t\t%s\n", cell(p.File))
		}
	}
	w.Flush()
	for _, f := range l.Findings {
		fmt.Fprintf(a.stdout, "FINDING: %s\n  → %s\n", terminal.Shown(f.Text), terminal.Shown(f.Cure))
	}
}

func (a *app) packShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "One pack and what it can do",
		Example: "  bailey pack show git",
		Args:    oneArg("a pack, as in: bailey pack show git"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return look(cmd.Context(), a, wire.Query{Verb: packLook, Args: map[string]any{"name": args[0]}}, func(p packShown) {
				a.packLines(packRows{Packs: []packRow{p.packRow}})
				if p.Finding != "" {
					fmt.Fprintln(a.stdout, "FINDING: "+terminal.Shown(p.Finding))
				}
				w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
				for _, c := range p.Tools {
					fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\n", c.ID, c.SideEffect, c.Reversibility, cell(c.Command), cell(strings.Join(c.Egress, " ")), cell(c.Description))
				}
				w.Flush()
			})
		},
	}
}

func (a *app) packDiscover() *cobra.Command {
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
func (a *app) discover(ctx context.Context, words []string, dir string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	words = strings.Fields(strings.Join(words, " "))
	var found packRows
	if err := c.Look(ctx, wire.Query{Verb: packsLook, Args: map[string]any{"words": strings.Join(words, " ")}}, &found); err != nil {
		return err
	}
	if dir != "" {
		keys, err := a.keysFor(ctx, "")
		if err != nil {
			return err
		}
		bundles(&found, dir, words, keys)
	}
	if a.json {
		return a.print(found)
	}
	a.packLines(found)
	return nil
}

func (p packRow) says(words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p.words, strings.ToLower(w)) })
}

// bundles adds the bundles of a directory, each verified. A bundle that is not signed by a trusted key becomes a
// finding.
func bundles(found *packRows, dir string, words []string, keys []pack.Key) {
	for _, e := range namesIn(dir) {
		file := filepath.Join(dir, e)
		if filepath.Ext(e) != ".baileypack" {
			continue
		}
		v, _, err := readPackAt(file, false, keys)
		var p *pack.Pack
		if err == nil {
			p, err = v.Pack(e)
		}
		if err != nil {
			found.Findings = append(found.Findings, packFinding{File: file, Text: file + ": " + err.Error(), Cure: bailey.HintOf(err)})
			continue
		}
		if r := newPackRow(p, bundledPack, installedPack{Digest: v.Digest, Key: v.Key}); r.says(words) {
			r.File = file
			found.Packs = append(found.Packs, r)
		}
	}
}
