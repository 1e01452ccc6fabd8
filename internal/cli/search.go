package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

func (a *App) searchVerb() *cobra.Command {
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
			q := localapi.Query{Verb: "search", Args: map[string]any{"words": strings.Join(args, " "), "limit": limit}}
			c, err := a.Client()
			if err != nil {
				return err
			}
			var l apitype.SearchList
			if err := c.Look(cmd.Context(), q, &l); err != nil {
				return err
			}
			return a.found(l)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 10, "how many at most")
	return cmd
}

func (a *App) found(l apitype.SearchList) error {
	if len(l.Capabilities) == 0 {
		fmt.Fprintln(a.Stderr, "bailey: nothing fits these words\n  bailey capabilities list shows all there is")
	}
	if a.JSON {
		return a.Print(l)
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	for _, c := range l.Capabilities {
		fmt.Fprintf(w, "%s\t%s\t%s\t(%s)\n", c.ID, c.SideEffect, c.Description, strings.Join(c.Inputs, ", "))
	}
	return w.Flush()
}
