package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

func (a *App) hooksVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "hooks", Short: "Manage your own programs that check prompts, calls and results",
		Long: "List, try and apply the programs that $BAILEY_HOME/hooks.json names. docs/hooks.md is for their authors."}
	cmd.AddCommand(a.hooksList(), a.hooksReload())
	return cmd
}

func (a *App) hooksList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the hooks, their jails, and whether they are in use", Args: cobra.NoArgs,
		Long: `List the hooks of $BAILEY_HOME/hooks.json and those that were applied. Only what was applied is asked; bailey hooks
reload applies the file. The status is what a run now would have: FullyEnforced, PartiallyEnforced, PlatformUnsupported,
Disabled ("sandbox": false), or why it would not start.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Show(cmd.Context(), a, apitype.ListHooks, localapi.None{}, a.hookRows)
		},
	}
}

func (a *App) hookRows(l apitype.HookList) {
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	for _, h := range l.Hooks {
		state := "asked"
		switch {
		case h.Gone:
			state = "asked, not in the file"
		case !h.Applied:
			state = "NOT APPLIED"
		}
		status := h.Status
		if h.Problem != "" {
			status = strings.TrimSpace(status + " DOES NOT START: " + terminal.Shown(h.Problem))
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", h.Hook, h.Event, terminal.TableCell(strings.Join(h.Argv, " ")),
			terminal.TableCell(h.Matcher), state, status)
		if h.Warned != nil {
			fmt.Fprintf(w, "\t%s\t%s\n", h.Warned.Kind, terminal.Shown(h.Warned.Text))
		}
	}
	w.Flush()
	switch {
	case l.Fault != "":
		fmt.Fprintln(a.Stdout, "NOTHING IS ALLOWED: "+terminal.Shown(l.Fault))
	case l.Drift != "":
		fmt.Fprintln(a.Stdout,
			"DRIFT: "+terminal.Shown(l.Drift)+"; bailey hooks reload shows the difference and applies it")
	case len(l.Hooks) == 0:
		fmt.Fprintf(a.Stdout, "no hooks: %s names them, bailey hooks reload applies it\n", l.File)
	}
}

func (a *App) hooksReload() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "reload", Short: "Show what hooks.json changes, and apply it", Args: cobra.NoArgs,
		Long: `Put $BAILEY_HOME/hooks.json to use, from the next event on. It shows what changes and asks. A file with a fault changes
nothing; without a file there are no hooks. What was applied stays in use whatever becomes of the file; that it differs is a
finding of status and doctor. What sessions were warned of, they will be warned of again.

Programs are not copied: who may write one decides what it says.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.reloadHooks(cmd.Context(), yes) },
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *App) reloadHooks(ctx context.Context, yes bool) error {
	op, err := a.Operator("hooks reload", yes)
	if err != nil {
		return err
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	p, err := apitype.CompareHooks.Ask(ctx, c, localapi.None{})
	if err != nil {
		return err
	}
	if p.Differs {
		if !yes || !a.JSON {
			fmt.Fprintf(a.Dialog(), "%s: %s\n%s", terminal.CutLine(p.File), apitype.Counts(p.Hooks, "hook"), p.Text)
			for _, w := range p.Loud {
				fmt.Fprintf(a.Dialog(), "  ! %s\n", terminal.CutLine(w))
			}
		}
		if !yes {
			if err := a.Confirm(ctx, "Apply this?"); err != nil {
				return err
			}
		}
	}
	if p, err = apitype.ApplyHooks.Do(ctx, c, op,
		apitype.HooksRequest{Digest: p.Digest, Base: p.Applied.Digest}); err != nil {
		return err
	}
	switch {
	case a.JSON:
		return a.Print(p)
	case !p.Changed:
		fmt.Fprintln(a.Stdout, "nothing changes: these hooks are in use")
	default:
		fmt.Fprintf(a.Stdout, "applied: %s in use from the next event on\n", apitype.Counts(p.Hooks, "hook"))
	}
	return nil
}
