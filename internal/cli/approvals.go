package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

func (a *App) approvalsVerb() *cobra.Command {
	list := a.approvalsList()
	cmd := &cobra.Command{
		Use: "approvals", Args: cobra.NoArgs, RunE: list.RunE, Short: "What waits for a person",
		Long: "List and show the questions that rules ask. A question is answered by bailey approve and bailey deny.",
	}
	cmd.AddCommand(list, a.approvalsShow(), a.approvalsServe())
	return cmd
}

func (a *App) approvalsList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The questions that are open, oldest first", Args: cobra.NoArgs,
		Long: "List what waits for a person, and what was granted and waits for its call to come back. Questions about the same call\nof several sessions stand together.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Query(cmd.Context(), a, localapi.Query{Verb: "approvals"}, func(l apitype.QuestionList) {
				if len(l.Approvals) == 0 {
					fmt.Fprintln(a.Stdout, "no question is open")
				}
				w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
				for i, q := range l.Approvals {
					words := fmt.Sprintf("%s\tby %s\t%s\t%s", terminal.TableCell(string(q.Call)), terminal.TableCell(q.Agent), terminal.TableCell(strings.TrimSpace(q.Inputs)), q.WaitText())
					if i > 0 && l.Approvals[i-1].Alike == q.Alike {
						words = "the same\t\t\t" + q.WaitText()
					}
					fmt.Fprintf(w, "%s\t%s\tuntil %s\n", q.ID, words, q.Until().Local().Format(time.TimeOnly))
				}
				w.Flush()
			})
		},
	}
}

func (a *App) approvalsShow() *cobra.Command {
	var plain bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "All that a question asks",
		Long: `Show a question whole: the text that an answer binds, and what it takes to grant it, or how it ended. docs/approvals.md
says how to read the text.

With --text it prints the text alone, byte for byte, which is what is signed:

  bailey approvals show ID --text | ssh-keygen -Y sign -n approval@bailey -f KEY > FILE`,
		Args: OneArg("a question: bailey approvals list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Client()
			if err != nil {
				return err
			}
			q, err := questionOf(cmd.Context(), c, args[0])
			switch {
			case err != nil:
				return err
			case a.JSON:
				return a.Print(q)
			case plain:
				_, err = a.Stdout.Write([]byte(q.Text))
				return err
			}
			_, err = fmt.Fprint(a.Stdout, q.Summary())
			return err
		},
	}
	cmd.Flags().BoolVar(&plain, "text", false, "the text alone, as it is signed")
	return cmd
}

// questionOf queries one question and checks that its text matches its digest. The details of the call are parsed from
// the text on this side, so that other fields of the reply cannot contradict them.
func questionOf(ctx context.Context, c *localapi.Client, id string) (apitype.OpenQuestion, error) {
	var l apitype.QuestionList
	if err := c.Look(ctx, localapi.Query{Verb: "approvals", Args: map[string]any{"id": id}}, &l); err != nil {
		return apitype.OpenQuestion{}, err
	}
	if len(l.Approvals) != 1 {
		return apitype.OpenQuestion{}, &bailey.Error{Kind: bailey.Internal, Message: "the gateway answered with another number of questions than one"}
	}
	return l.Approvals[0].Read(id)
}
