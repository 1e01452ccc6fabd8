package main

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
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// Giving and revoking a standing grant require operator rights. The draft of its text is available to all.
const standVerb, revokeVerb, draftVerb = "grants.give", "grants.revoke", "grants.draft"

// standingGrant is the JSON form of a grant for a period of time.
type standingGrant struct {
	ID         bailey.GrantID      `json:"id"`
	Capability bailey.CapabilityID `json:"capability"`
	Agent      string              `json:"agent"`
	Person     string              `json:"person,omitempty"`
	Rules      []bailey.Rule       `json:"rules"`
	Given      time.Time           `json:"given"`
	Until      time.Time           `json:"until"`
	By         string              `json:"by"`
	Level      bailey.Level        `json:"level"`
	Question   bailey.ApprovalID   `json:"question"`
	Text       string              `json:"text"`
}

type grantList struct {
	Grants []standingGrant `json:"grants"`
}

func (a *app) grantsVerb() *cobra.Command {
	list := a.grantsList()
	cmd := &cobra.Command{
		Use: "grants", Args: cobra.NoArgs, RunE: list.RunE, Short: "What was granted for a while",
		Long: "List and revoke grants that stand. One is given by bailey approve ID --for.",
	}
	cmd.AddCommand(list, a.grantsRevoke())
	return cmd
}

func (a *app) grantsList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The grants that stand, oldest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return look(cmd.Context(), a, wire.Query{Verb: "grants"}, func(l grantList) {
				if len(l.Grants) == 0 {
					fmt.Fprintln(a.stdout, "no grant stands")
				}
				w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
				for _, g := range l.Grants {
					fmt.Fprintf(w, "%s\t%s\tof %s\t%s\tby %s (%s)\tuntil %s\n", g.ID, cell(string(g.Capability)), cell(g.Agent), cell(askingRules(g.Rules)), cell(g.By), g.Level, g.Until.Local().Format(time.DateTime))
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

func (a *app) grantsRevoke() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "revoke ID…", Short: "End a grant that stands",
		Long: "End a grant: the next call that its rules ask about is asked about, and so is one that it let through and that did not run yet.\n\nAn operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.",
		Args: someArgs("a grant: bailey grants list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			op, err := a.operator("grants", yes)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			for _, id := range args {
				if err := act(cmd.Context(), c, op, revokeVerb, map[string]any{"id": id}, &approve.Revoked{}); err != nil {
					return err
				}
				if !a.json {
					fmt.Fprintf(a.stdout, "revoked %s\n", visible(id))
				}
			}
			if a.json {
				return a.print(map[string]any{"ok": true, "revoked": args})
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// approveFor gives a standing grant. The question that was shown is its first use.
func (a *app) approveFor(ctx context.Context, c *wire.Client, op wire.Operator, q openQuestion, how answering) error {
	long, ok := span(how.long)
	if !ok {
		return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("--for %s is no length of time", visible(how.long)), Hint: "as in --for 1h30m"}
	}
	var d struct{ Text string }
	if err := c.Look(ctx, wire.Query{Verb: draftVerb, Args: map[string]any{"id": string(q.ID), "seconds": int64(long / time.Second)}}, &d); err != nil {
		return err
	}
	g, err := canon.ParseGrant(d.Text)
	if err != nil || g.Capability != q.Call || g.Principal.Agent != q.Agent || time.Until(g.Until) > long+time.Minute {
		return &bailey.Error{Kind: bailey.Denied, Message: "the gateway drafted another grant than was asked for", Err: err, Hint: "do not give it; bailey gateway stop"}
	}
	if !how.yes || !a.json {
		fmt.Fprintf(a.dialog(), "\nThe grant would let every %s of %s through that %s asks about, whatever its arguments, until %s.\n",
			terminal.Shown(string(g.Capability)), terminal.Shown(g.Principal.Agent), askingRules(g.Rules), g.Until.Local().Format(time.DateTime))
	}
	if !how.yes {
		if err := a.confirm(ctx, "Let it stand?"); err != nil {
			return err
		}
	}
	signature, err := how.signed(ctx, d.Text)
	if err != nil {
		return err
	}
	var out standingGrant
	if err := act(ctx, c, op, standVerb, map[string]any{"id": string(g.ID), "digest": canon.Digest(d.Text), "signature": signature}, &out); err != nil {
		return err
	}
	if a.json {
		return a.print(out)
	}
	_, err = fmt.Fprintf(a.stdout, "granted until %s: bailey grants revoke %s ends it before\n", out.Until.Local().Format(time.DateTime), out.ID)
	return err
}

// draft is a query. It returns the text that would be signed.
func (s *stack) draft(_ context.Context, q wire.Query, _ bailey.Call) (any, error) {
	text, err := s.queue.Draft(bailey.ApprovalID(text(q.Args, "id")), time.Duration(number(q.Args, "seconds"))*time.Second)
	return map[string]string{"text": text}, err
}

// stand gives a standing grant. It requires operator rights.
func (s *stack) stand(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	g, err := s.queue.Stand(ctx, bailey.GrantID(text(q.Args, "id")), approve.Given{Digest: text(q.Args, "digest"), Grant: true,
		Signature: text(q.Args, "signature"), Person: from.Principal.Person, Operator: string(q.Operator)})
	return newGrant(g), err
}

func (s *stack) revoke(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	r := approve.Revoked{ID: bailey.GrantID(text(q.Args, "id")), Person: from.Principal.Person, Operator: string(q.Operator)}
	return r, s.queue.Revoke(ctx, r)
}

// grants is a query. It returns the standing grants.
func (s *stack) grants(context.Context, wire.Query, bailey.Call) (any, error) {
	out := grantList{Grants: []standingGrant{}}
	for _, g := range s.queue.Grants() {
		out.Grants = append(out.Grants, newGrant(g))
	}
	return out, nil
}

func newGrant(s approve.Standing) standingGrant {
	g, err := canon.ParseGrant(s.Text)
	if err != nil { // such a grant would not be valid
		return standingGrant{ID: s.ID, Text: s.Text}
	}
	return standingGrant{ID: g.ID, Capability: g.Capability, Agent: g.Principal.Agent, Person: g.Principal.Person, Rules: g.Rules, Given: g.Given, Until: g.Until,
		By: s.By.Name, Level: s.By.Level, Question: s.Question, Text: s.Text}
}
