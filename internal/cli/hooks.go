package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

func (a *App) hooksVerb() *cobra.Command {
	return GroupVerb("hooks", "Manage your own programs that check prompts, calls and results",
		"List, test and apply the programs in $BAILEY_HOME/hooks.json. docs/hooks.md explains how to write them.",
		a.hooksList(), a.hooksReload())
}

func (a *App) hooksList() *cobra.Command {
	return QueryVerb(a, &cobra.Command{
		Use: "list", Short: "List the hooks, their jails, and whether they are in use",
		Long: `List the hooks of $BAILEY_HOME/hooks.json and those that were applied. Only applied hooks run;
bailey hooks reload applies the file. The status is what a run would have now: FullyEnforced,
PartiallyEnforced, PlatformUnsupported, Disabled ("sandbox": false), or the reason why it would not start.`,
	}, apitype.ListHooks, nil, printHooks)
}

func printHooks(w io.Writer, l apitype.HookList) {
	PrintTable(w, "", l.Hooks, func(h apitype.HookRow) []any {
		state := "asked"
		switch {
		case h.Gone:
			state = "in use, not in the file"
		case !h.Applied:
			state = "NOT APPLIED"
		}
		status := h.Status
		if h.Problem != "" {
			status = strings.TrimSpace(status + " DOES NOT START: " + terminal.Shown(h.Problem))
		}
		if h.Warned != nil {
			status += fmt.Sprintf("\n\t%s\t%s", h.Warned.Kind, terminal.Shown(h.Warned.Text))
		}
		return []any{h.Hook, h.Event, terminal.TableCell(strings.Join(h.Argv, " ")), terminal.TableCell(h.Matcher),
			state, status}
	})
	switch {
	case l.Fault != "":
		fmt.Fprintln(w, "NOTHING IS ALLOWED: "+terminal.Shown(l.Fault))
	case l.Drift != "":
		fmt.Fprintln(w, "DRIFT: "+terminal.Shown(l.Drift)+"; run bailey hooks reload to see the difference and apply it")
	case len(l.Hooks) == 0:
		fmt.Fprintf(w, "no hooks: write them to %s, then run bailey hooks reload\n", l.File)
	}
}

func (a *App) hooksReload() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "reload", Short: "Show what hooks.json changes, and apply it", Args: cobra.NoArgs,
		Long: `Apply $BAILEY_HOME/hooks.json from the next event on. The command shows the changes and asks for
confirmation. A faulty file changes nothing; without a file there are no hooks. The applied hooks stay in use
if the file changes later; status and doctor report the difference. Each session gets its warnings again.

Programs are not copied: anyone who can write a program controls the hook.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.reloadHooks(cmd.Context()) },
	})
}

func (a *App) reloadHooks(ctx context.Context) error {
	return propose(ctx, a, "hooks reload", "Apply this?", apitype.CompareHooks, localapi.None{}, apitype.ApplyHooks,
		func(p apitype.HookProposal) (bool, string, *apitype.HooksRequest) {
			text := fmt.Sprintf("%s: %s\n%s", terminal.CutLine(p.File), apitype.Counts(p.Hooks, "hook"), p.Text)
			for _, w := range p.Loud {
				text += fmt.Sprintf("  ! %s\n", terminal.CutLine(w))
			}
			return p.Differs, text, &apitype.HooksRequest{Digest: p.Digest, Base: p.Applied.Digest}
		}, func(p apitype.HookProposal) string {
			if !p.Changed {
				return "nothing to do: these hooks are in use"
			}
			return fmt.Sprintf("applied: %s in use from the next event on", apitype.Counts(p.Hooks, "hook"))
		})
}
