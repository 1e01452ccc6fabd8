package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"bailey/internal/wire"

	"github.com/spf13/cobra"

	"bailey"
)

// searchRow is one search result.
type searchRow struct {
	ID          bailey.CapabilityID `json:"id"`
	Description string              `json:"description"`
	SideEffect  string              `json:"sideEffectClass"`
	Inputs      []string            `json:"inputs"`
	Score       float64             `json:"score"`
}

type searchList struct {
	Capabilities []searchRow `json:"capabilities"`
}

func (a *app) searchVerb() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "search WORD...", Short: "Find capabilities by what they are for, best first",
		Long:    "Find capabilities by words of their id, description and inputs: whole, begun or misspelt. The best comes\nfirst. That nothing fits is an answer and no error.",
		Example: "  bailey capabilities search commits\n  bailey capabilities search what changed --limit 3 --json",
		Args: func(_ *cobra.Command, args []string) error {
			if strings.TrimSpace(strings.Join(args, "")) == "" || limit < 1 {
				return &bailey.Error{Kind: bailey.Invalid, Message: "search wants a word, and a limit of at least 1", Hint: "as in: bailey capabilities search commits"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			q := wire.Query{Verb: "search", Args: map[string]any{"words": strings.Join(args, " "), "limit": limit}}
			c, err := a.client()
			if err != nil {
				return err
			}
			var l searchList
			if err := c.Look(cmd.Context(), q, &l); err != nil {
				return err
			}
			return a.found(l)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 10, "how many at most")
	return cmd
}

func (a *app) found(l searchList) error {
	if len(l.Capabilities) == 0 {
		fmt.Fprintln(a.stderr, "bailey: nothing fits these words\n  bailey capabilities list shows all there is")
	}
	if a.json {
		return a.print(l)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, c := range l.Capabilities {
		fmt.Fprintf(w, "%s\t%s\t%s\t(%s)\n", c.ID, c.SideEffect, c.Description, strings.Join(c.Inputs, ", "))
	}
	return w.Flush()
}

func (s *stack) search(_ context.Context, q wire.Query, _ bailey.Call) (any, error) {
	out := searchList{Capabilities: []searchRow{}}
	stack := s.shelf.profiles.InForce()
	for _, m := range s.shelf.Catalog().Search(text(q.Args, "words"), number(q.Args, "limit")) {
		c := m.Capability
		if admit(stack, c) != nil {
			continue
		}
		out.Capabilities = append(out.Capabilities, searchRow{ID: c.ID, Description: c.Description,
			SideEffect: string(c.SideEffect), Inputs: c.InputNames(), Score: m.Score})
	}
	return out, nil
}
