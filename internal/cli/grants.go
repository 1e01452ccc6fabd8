package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/canon"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

func (a *App) grantsVerb() *cobra.Command {
	list := a.grantsList()
	cmd := &cobra.Command{
		Use: "grants", Args: cobra.NoArgs, RunE: list.RunE, Short: "What was granted for a while",
		Long: "List and revoke grants that stand. One is given by bailey approve ID --for.",
	}
	cmd.AddCommand(list, a.grantsRevoke())
	return cmd
}

func (a *App) grantsList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The grants that stand, oldest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Query(cmd.Context(), a, localapi.Query{Verb: "grants"}, func(l apitype.GrantList) {
				if len(l.Grants) == 0 {
					fmt.Fprintln(a.Stdout, "no grant stands")
				}
				w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
				for _, g := range l.Grants {
					fmt.Fprintf(w, "%s\t%s\tof %s\t%s\tby %s (%s)\tuntil %s\n", g.ID, terminal.TableCell(string(g.Capability)), terminal.TableCell(g.Agent), terminal.TableCell(askingRules(g.Rules)), terminal.TableCell(g.By), g.Level, g.Until.Local().Format(time.DateTime))
				}
				w.Flush()
			})
		},
	}
}

func askingRules(rules []bailey.Rule) string {
	var ids []string
	for _, r := range rules {
		ids = append(ids, string(r.ID))
	}
	return strings.Join(ids, ", ")
}

func (a *App) grantsRevoke() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "revoke ID…", Short: "End a grant that stands",
		Long: "End a grant: the next call that its rules ask about is asked about, and so is one that it let through and that did not run yet.\n\nAn operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.",
		Args: someArgs("a grant: bailey grants list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			op, err := a.Operator("grants", yes)
			if err != nil {
				return err
			}
			c, err := a.Client()
			if err != nil {
				return err
			}
			for _, id := range args {
				if err := Command(cmd.Context(), c, op, apitype.RevokeVerb, map[string]any{"id": id}, &approve.Revoked{}); err != nil {
					return err
				}
				if !a.JSON {
					fmt.Fprintf(a.Stdout, "revoked %s\n", terminal.CutLine(id))
				}
			}
			if a.JSON {
				return a.Print(map[string]any{"ok": true, "revoked": args})
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// approveFor gives a standing grant. The question that was shown is its first use.
func (a *App) approveFor(ctx context.Context, c *localapi.Client, op localapi.Operator, q apitype.OpenQuestion, how answering) error {
	long, ok := parseDuration(how.long)
	if !ok {
		return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("--for %s is no length of time", terminal.CutLine(how.long)), Hint: "as in --for 1h30m"}
	}
	var d struct{ Text string }
	if err := c.Look(ctx, localapi.Query{Verb: apitype.DraftVerb, Args: map[string]any{"id": string(q.ID), "seconds": int64(long / time.Second)}}, &d); err != nil {
		return err
	}
	g, err := canon.ParseGrant(d.Text)
	if err != nil || g.Capability != q.Call || g.Principal.Agent != q.Agent || time.Until(g.Until) > long+time.Minute {
		return &bailey.Error{Kind: bailey.Denied, Message: "the gateway drafted another grant than was asked for", Err: err, Hint: "do not give it; bailey gateway stop"}
	}
	if !how.yes || !a.JSON {
		fmt.Fprintf(a.Dialog(), "\nThe grant would let every %s of %s through that %s asks about, whatever its arguments, until %s.\n",
			terminal.Shown(string(g.Capability)), terminal.Shown(g.Principal.Agent), askingRules(g.Rules), g.Until.Local().Format(time.DateTime))
	}
	if !how.yes {
		if err := a.Confirm(ctx, "Let it stand?"); err != nil {
			return err
		}
	}
	signature, err := how.signed(ctx, d.Text)
	if err != nil {
		return err
	}
	var out apitype.StandingGrant
	if err := Command(ctx, c, op, apitype.StandVerb, map[string]any{"id": string(g.ID), "digest": canon.Digest(d.Text), "signature": signature}, &out); err != nil {
		return err
	}
	if a.JSON {
		return a.Print(out)
	}
	_, err = fmt.Fprintf(a.Stdout, "granted until %s: bailey grants revoke %s ends it before\n", out.Until.Local().Format(time.DateTime), out.ID)
	return err
}
