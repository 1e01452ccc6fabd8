package cli

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

func (a *App) budgetVerb() *cobra.Command {
	return &cobra.Command{
		Use: "budget", Short: "What agents have used up of their budgets", Args: cobra.NoArgs,
		Long: `Show each budget of the policy, and what was used of it since when. Budgets stand in budgets.yaml of the policy's
directory and take effect by "bailey policy apply".`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Query(cmd.Context(), a, localapi.Query{Verb: "budget"}, a.budgetWords)
		},
	}
}

func (a *App) budgetWords(s apitype.Spendings) {
	if len(s.Budgets) == 0 {
		fmt.Fprintln(a.Stdout, "the policy sets no budget")
		return
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BUDGET\tOF\tCALLS\tAT ONE TIME\tRAN\tCPU\tOUTPUT\tUNTIL")
	for _, b := range s.Budgets {
		of := ""
		for _, word := range []string{string(b.Session), b.Agent, b.Person, string(b.Capability)} {
			if word != "" {
				of += " " + terminal.TableCell(word)
			}
		}
		until := "the session ends"
		switch {
		case b.Until != nil:
			until = b.Until.Local().Format("2006-01-02 15:04")
		case !b.Limit.Session || b.Since.IsZero():
			until = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", terminal.TableCell(b.Budget), cmp.Or(strings.TrimSpace(of), "-"),
			ofBound(b.Calls, b.Limit.Calls), ofBound(b.Open, b.Limit.Concurrent),
			ofBound(b.Wall.Round(time.Millisecond), b.Limit.Wall), ofBound(b.CPU.Round(time.Millisecond), b.Limit.CPU), ofBound(b.Output, b.Limit.Output), until)
	}
	w.Flush()
}

// ofBound formats the usage of a budget, with the limit if there is one.
func ofBound[T comparable](used, bound T) string {
	if bound == *new(T) {
		return fmt.Sprint(used)
	}
	return fmt.Sprintf("%v of %v", used, bound)
}
