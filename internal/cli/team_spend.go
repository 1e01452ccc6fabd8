package cli

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

// teamSpending is what requests to models have cost.
type teamSpending struct {
	Day          time.Time `json:"day"`
	Host         string    `json:"host"`
	HostName     string    `json:"hostName"`
	Agent        string    `json:"agent"`
	Person       string    `json:"person"`
	Calls        int64     `json:"calls"`
	InputTokens  int64     `json:"inputTokens"`
	OutputTokens int64     `json:"outputTokens"`
	MicroUSD     int64     `json:"microUsd"`
}

type teamSpendList struct {
	Items []teamSpending `json:"items"`
	Total struct {
		InputTokens  int64 `json:"inputTokens"`
		OutputTokens int64 `json:"outputTokens"`
		MicroUSD     int64 `json:"microUsd"`
	} `json:"total"`
}

// spendGroups are what bailey team spend can sum by.
var spendGroups = []string{"agent", "person", "host", "day"}

// nameOf returns the name of the group of a sum.
func (p teamSpending) nameOf(group string) string {
	switch group {
	case "person":
		return p.Person
	case "host":
		return cmp.Or(p.HostName, p.Host)
	case "day":
		return p.Day.UTC().Format(time.DateOnly)
	}
	return p.Agent
}

func (a *App) teamSpend(s *teamServer) *cobra.Command {
	var days int
	by := "agent"
	cmd := &cobra.Command{Use: "spend", Short: "Show what models have cost on all gateways, as an admin",
		Long: "Show what models have cost on all gateways, by their receipts, as an admin of the organisation.", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(spendGroups, by) {
				return bailey.Invalid.Errorf("use --by "+strings.Join(spendGroups, ", --by "), "%q is not something to sum by", by)
			}
			var l teamSpendList
			if err := s.sendRequest(cmd.Context(), "GET", fmt.Sprintf("spend?days=%d", days), nil, &l); err != nil {
				return err
			}
			return PrintAnswer(a, l, func(w io.Writer, l teamSpendList) { printSpend(w, l, by) })
		}}
	cmd.Flags().IntVar(&days, "days", 31, "how many days, of which today is the last")
	cmd.Flags().StringVar(&by, "by", by, "sum by `agent`, person, host or day")
	return cmd
}

func printSpend(w io.Writer, l teamSpendList, by string) {
	var names []string
	sums := map[string]teamSpending{}
	for _, p := range l.Items {
		name := p.nameOf(by)
		sum, ok := sums[name]
		if !ok {
			names = append(names, name)
		}
		sum.Calls, sum.MicroUSD = sum.Calls+p.Calls, sum.MicroUSD+p.MicroUSD
		sum.InputTokens, sum.OutputTokens = sum.InputTokens+p.InputTokens, sum.OutputTokens+p.OutputTokens
		sums[name] = sum
	}
	PrintTable(w, "", names, func(name string) []any {
		sum := sums[name]
		return []any{terminal.TableCell(name), fmt.Sprintf("%d requests", sum.Calls),
			fmt.Sprintf("%d tokens in, %d out", sum.InputTokens, sum.OutputTokens), apitype.Dollars(sum.MicroUSD)}
	})
	fmt.Fprintf(w, "in all %s\n", apitype.Dollars(l.Total.MicroUSD))
}

// teamBudget is a budget of the organisation.
type teamBudget struct {
	ID           string    `json:"id,omitempty"`
	Agent        string    `json:"agent,omitempty"`
	Period       string    `json:"period"`
	InputTokens  int64     `json:"inputTokens,omitempty"`
	OutputTokens int64     `json:"outputTokens,omitempty"`
	MicroUSD     int64     `json:"microUsd,omitempty"`
	Person       string    `json:"person,omitempty"`
	Ended        time.Time `json:"ended,omitzero"`
}

type teamBudgetList struct {
	Items []teamBudget `json:"items"`
}

func (b teamBudget) limits() string {
	var list []string
	if b.MicroUSD > 0 {
		list = append(list, apitype.Dollars(b.MicroUSD))
	}
	if b.InputTokens > 0 {
		list = append(list, fmt.Sprintf("%d input tokens", b.InputTokens))
	}
	if b.OutputTokens > 0 {
		list = append(list, fmt.Sprintf("%d output tokens", b.OutputTokens))
	}
	return strings.Join(list, ", ")
}

func (a *App) teamBudgets(s *teamServer) *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List the budgets that are in force", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var l teamBudgetList
			if err := s.sendRequest(cmd.Context(), "GET", "budgets", nil, &l); err != nil {
				return err
			}
			l.Items = slices.DeleteFunc(l.Items, func(b teamBudget) bool { return !b.Ended.IsZero() })
			return PrintAnswer(a, l, func(w io.Writer, l teamBudgetList) {
				if len(l.Items) == 0 {
					fmt.Fprintln(w, "no budgets: bailey team budgets set --usd 100")
				}
				PrintTable(w, "", l.Items, func(b teamBudget) []any {
					return []any{terminal.TableCell(b.ID), b.limits() + " a " + terminal.TableCell(b.Period),
						"for " + terminal.TableCell(cmp.Or(b.Agent, "all agents together")), "by " + terminal.TableCell(b.Person)}
				})
			})
		}}
	var b teamBudget
	var usd float64
	set := &cobra.Command{Use: "set", Short: "Set what models may cost on all gateways together", Args: cobra.NoArgs,
		Long: `Set what models may cost on all gateways together. Each gateway applies it in addition to the budgets of its own
policy. Gateways learn what the others have spent within half a minute, so that the sum can be exceeded by what
is spent in that time.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b.MicroUSD = int64(math.Round(usd * 1e6))
			var made teamBudget
			if err := s.sendRequest(cmd.Context(), "POST", "budgets", b, &made); err != nil {
				return err
			}
			return a.PrintLine(made, "%s: %s a %s\n", terminal.CutLine(made.ID), made.limits(), terminal.CutLine(made.Period))
		}}
	set.Flags().StringVar(&b.Agent, "agent", "", "only for this `agent`; otherwise for all together")
	set.Flags().StringVar(&b.Period, "period", "month", "`day or month`, UTC")
	set.Flags().Float64Var(&usd, "usd", 0, "US dollars")
	set.Flags().Int64Var(&b.InputTokens, "input-tokens", 0, "tokens of input")
	set.Flags().Int64Var(&b.OutputTokens, "output-tokens", 0, "tokens of output")
	end := &cobra.Command{Use: "end ID", Short: "End a budget", Args: OneArg("a budget: see bailey team budgets list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.sendRequest(cmd.Context(), "DELETE", "budgets/"+url.PathEscape(args[0]), nil, nil); err != nil {
				return err
			}
			return a.PrintLine(map[string]bool{"ok": true}, "%s has ended\n", terminal.CutLine(args[0]))
		}}
	return GroupVerb("budgets", "List, set and end the budgets of the organisation", "", list, set, end)
}
