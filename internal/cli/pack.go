package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/terminal"
	"bailey/pack"
)

func (a *App) packVerb() *cobra.Command {
	return GroupVerb("pack", "Install, build and inspect packs of capabilities", "",
		QueryVerb(a, &cobra.Command{
			Use: "list", Short: "List the packs and their faults",
			Long: `List the packs that ship with Bailey and the installed ones, with version, signer and faults: every
bundle is verified.`,
		}, apitype.ListPacks, nil, printPacks),
		a.packShow(), a.packDiscover(), a.packValidate(), a.packScaffold(), a.packBundle(),
		a.packKeygen(), a.packSign(), a.packVerify(), a.packDiff(),
		a.packTrust(), a.packUntrust(), a.packInstall(), a.packUninstall(), a.packPublish(), a.packRepin())
}

func (a *App) packRepin() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "repin CAPABILITY", Short: "Accept a tool that has changed",
		Long: `Accept the current programs of a capability.

If users other than root can write a program, it is compared with the program of its first call. If it has
changed, each call that would run it asks for an approval until this command accepts the change. The command
shows the old and the new digest, and asks for confirmation.`,
		Example: "  bailey pack repin git.status",
		Args:    OneArg("a capability, for example: bailey pack repin git.status"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.repinPrograms(cmd.Context(), args[0]) },
	})
}

// repinPrograms shows the changes, asks, and accepts them.
func (a *App) repinPrograms(ctx context.Context, id string) error {
	return propose(ctx, a, "pack repin", "Accept this?", apitype.ListProgramChanges, apitype.ID{ID: id},
		apitype.RepinPrograms, func(seen apitype.Changed) (bool, string, *apitype.RepinRequest) {
			text := ""
			for _, p := range seen.Programs {
				text += fmt.Sprintf("%s, which users other than root can write\n  - %s\n  + %s\n", terminal.CutLine(p.Path), p.Was,
					p.SHA256)
			}
			differs := len(seen.Programs) > 0
			change := apitype.RepinRequest{ID: bailey.CapabilityID(id), Shown: seen.Programs}
			return differs, text, changeIf(differs, change)
		}, func(seen apitype.Changed) string {
			if !seen.Changed {
				return "nothing to do: its programs are unchanged"
			}
			return string(seen.Capability) + " runs the current program"
		})
}

func (a *App) packInstall() *cobra.Command {
	var downgrade bool
	var dev string
	cmd := &cobra.Command{
		Use: "install BUNDLE | --dev DIR", Short: "Show what a pack may do, and install it",
		Long: `Install a pack from BUNDLE, which must be signed by a key that bailey pack trust added. The
command shows what the pack may do beyond the installed version, and asks for confirmation. The bundle is
stored unchanged and verified each time it is loaded. A version older than the newest ever installed, or
different contents of the same version, is refused without --downgrade.

With --dev DIR, install a directory of your own as its files are now: it is unsigned, each of its receipts
says dev, and changes of its files take effect when it is installed again.`,
		Example: "  bailey pack install demo-1.0.0.baileypack\n  bailey pack install --dev ./demo",
		Args: CheckArgs(func(_ *cobra.Command, args []string) bool {
			return len(args) <= 1 && (len(args) == 1) != (dev != "")
		}, "install needs a bundle, or --dev and a directory", "use for example: bailey pack install demo-1.0.0.baileypack"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := filepath.Abs(strings.Join(append(args, dev), ""))
			if err != nil {
				return err
			}
			return a.installPack(cmd.Context(), apitype.PackRequest{Path: path, Dev: dev != "", Downgrade: downgrade})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&downgrade, "downgrade", false, "allow a version older than one installed before")
	f.StringVar(&dev, "dev", "", "an unsigned pack's `directory` of your own")
	return a.OperatorVerb(cmd)
}

func (a *App) installPack(ctx context.Context, r apitype.PackRequest) error {
	return propose(ctx, a, "pack install", "Install this?", apitype.ComparePack, r, apitype.InstallPack,
		func(p apitype.PackProposal) (bool, string, *apitype.PackRequest) {
			r.Digest = p.Digest
			if p.Was != nil {
				r.Base = p.Was.Digest
			}
			return p.Differs, p.Summary(), changeIf(p.Differs, r)
		}, func(p apitype.PackProposal) string {
			if !p.Changed {
				return fmt.Sprintf("nothing changes: %s %s is installed", p.Name, p.Version)
			}
			return fmt.Sprintf("installed: %s %s, in use from the next call on", p.Name, p.Version)
		})
}

func (a *App) packUninstall() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "uninstall NAME", Short: "Uninstall a pack",
		Long: `Uninstall the pack NAME and remove its bundle. Its newest version stays recorded, so that an older
one is refused later.`,
		Example: "  bailey pack uninstall demo",
		Args:    OneArg("a pack's name, for example: bailey pack uninstall demo"),
		RunE: func(cmd *cobra.Command, args []string) error {
			was, err := Operate(cmd.Context(), a, "pack uninstall", apitype.UninstallPack, apitype.PackName{Name: args[0]},
				"Uninstall "+terminal.CutLine(args[0])+"?")
			if err != nil {
				return err
			}
			return a.PrintLine(map[string]any{"ok": true, "changed": true, "name": was.Name, "version": was.Version},
				"uninstalled: %s %s\n", was.Name, was.Version)
		},
	})
}

// installedCatalog returns the packs that a gateway of this home would use, and prints which installed ones it would
// not load.
func (a *App) installedCatalog() (*pack.Catalog, error) {
	home, err := localapi.FindHome()
	if err != nil {
		return nil, err
	}
	catalog, found, err := a.Local.Catalog(home)
	for _, f := range found {
		if f.Pack != "" {
			fmt.Fprintf(a.Stderr, "bailey: %s\n  %s\n", terminal.Shown(f.Text), terminal.Shown(f.Cure))
		}
	}
	return catalog, err
}

func printPacks(w io.Writer, l apitype.PackRows) {
	PrintTable(w, "", l.Packs, func(p packstore.Row) []any {
		from, file := p.Source, ""
		if p.Key != "" {
			from += ", " + p.Key
		}
		if p.File != "" {
			file = "\n\t\t" + terminal.TableCell(p.File)
		}
		return []any{terminal.TableCell(p.Name), terminal.TableCell(p.Version), from,
			apitype.Counts(p.Capabilities, "capability"), terminal.TableCell(p.Description) + file}
	})
	for _, f := range l.Findings {
		fmt.Fprintf(w, "FINDING: %s\n  → %s\n", terminal.Shown(f.Text), terminal.Shown(f.Cure))
	}
}

func (a *App) packShow() *cobra.Command {
	return QueryVerb(a, &cobra.Command{
		Use: "show NAME", Short: "Show a pack and its capabilities",
		Example: "  bailey pack show git",
		Args:    OneArg("a pack, for example: bailey pack show git"),
	}, apitype.ShowPack, func(args []string) (apitype.PackName, error) { return apitype.PackName{Name: args[0]}, nil },
		func(w io.Writer, p apitype.PackShown) {
			printPacks(w, apitype.PackRows{Packs: []packstore.Row{p.Row}})
			if p.Finding != "" {
				fmt.Fprintln(w, "FINDING: "+terminal.Shown(p.Finding))
			}
			PrintTable(w, "", p.Tools, func(c apitype.Capability) []any {
				return []any{"  " + string(c.ID), c.SideEffect, c.Reversibility, terminal.TableCell(c.Command),
					terminal.TableCell(strings.Join(c.Egress, " ")), terminal.TableCell(c.Description)}
			})
		})
}

func (a *App) packDiscover() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "discover [WORD...]", Short: "Search packs by purpose",
		Long: `Find packs whose name, description or capabilities contain all the words: packs that ship with
Bailey, installed packs, and with --dir the bundles in a directory, as bailey pack publish fills it. Nothing
is downloaded.`,
		Example: "  bailey pack discover commit\n  bailey pack discover --dir /srv/packs",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.searchPacks(cmd.Context(), args, dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "a `directory` with bundles")
	return cmd
}

// searchPacks searches the directory from the process of the user. Only the installed packs come from the gateway.
func (a *App) searchPacks(ctx context.Context, words []string, dir string) error {
	words = strings.Fields(strings.Join(words, " "))
	found, err := Ask(ctx, a, apitype.ListPacks, apitype.PackSearch{Words: strings.Join(words, " ")})
	if err != nil {
		return err
	}
	if dir != "" {
		keys, err := a.keysFor(ctx, "")
		if err != nil {
			return err
		}
		addBundles(&found, dir, words, keys)
	}
	return PrintAnswer(a, found, printPacks)
}

// addBundles adds the bundles of a directory, each verified. A bundle that is not signed by a trusted key becomes a
// finding.
func addBundles(found *apitype.PackRows, dir string, words []string, keys []pack.Key) {
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
			found.Findings = append(found.Findings,
				packstore.Finding{File: file, Text: file + ": " + err.Error(), Cure: bailey.HintOf(err)})
			continue
		}
		if r := packstore.NewRow(p, packstore.BundledPack,
			packstore.Installed{Digest: v.Digest, Key: v.Key}); r.Says(words) {
			r.File = file
			found.Packs = append(found.Packs, r)
		}
	}
}

// Vacant returns an error if dir exists and is not an empty directory.
func Vacant(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return bailey.Invalid.New(dir+" is a symbolic link", "give the directory itself to --dir")
	}
	list, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return bailey.Invalid.Wrap(err, dir+" is not a directory that a pack can be written to",
			"give another one to --dir")
	case len(list) > 0:
		return bailey.Conflict.New(dir+" is not empty, and files are not overwritten",
			"give another directory to --dir")
	}
	return nil
}

// Settle creates the directory with all its files atomically. If it fails, nothing remains.
func Settle(dir string, files map[string][]byte) (err error) {
	defer func() {
		if err != nil {
			err = bailey.Unavailable.Wrap(err, "cannot write the pack to "+dir,
				"give another directory to --dir")
		}
	}()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), ".onboard-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(made)
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(made, name), data, 0o644); err != nil {
			return err
		}
	}
	if err := os.Chmod(made, 0o755); err != nil {
		return err
	}
	// succeeds only if empty
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(made, dir)
}
