package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

const (
	noGateway = "no gateway is running; the next call starts one"
	Walled    = "only calls can reach one from inside the agent jail"
)

// stoppedStatus returns the status if no gateway is running.
func stoppedStatus(home localapi.Home, hint string) apitype.Status {
	return apitype.Status{Home: string(home), Hint: hint, Calls: []apitype.LiveCall{},
		Sessions: []apitype.LiveSession{}, Agents: apitype.NewAgentStatus(nil)}
}

func (a *App) statusVerb() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the gateway, its ledger, and which agents are confined", Args: cobra.NoArgs,
		Long: `Show the gateway with its live calls and sessions, the ledger, the jail that calls get, and
whether agents are confined, hooked, or able to bypass the gate. The command tests this by trying. It starts
no gateway, and leaves nothing behind except the records of a hook's answers.`,
		PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, _ []string) error {
			home, err := localapi.FindHome()
			if err != nil {
				return err
			}
			here, err := os.Getwd()
			if err != nil {
				return err
			}
			s, err := stoppedStatus(home, Walled), error(nil)
			if localapi.Inside() == "" {
				s, err = AskStatus(cmd.Context(), home, StatusPatience)
			}
			if err != nil && !errors.Is(err, localapi.ErrUnreachable) {
				return err
			}
			if err != nil {
				s = stoppedStatus(home, Walled)
			}
			s.Shims, _ = Shims(home) // the doctor reports why they cannot be read
			s.Agents = CheckAgents(cmd.Context(), s.Agents, here, s.Running, false)
			if err != nil && s.Agents[0].State != apitype.ConfinedState {
				return err
			}
			return PrintAnswer(a, s, func(w io.Writer, s apitype.Status) { s.WriteSummary(w) })
		},
	}
}

// StatusPatience limits how long the gateway may take to answer. It first verifies a segment of the ledger and builds
// cages.
const StatusPatience = 30 * time.Second

// AskStatus queries the running gateway. If no gateway is running, it returns the status from stopped.
func AskStatus(ctx context.Context, home localapi.Home, patience time.Duration) (apitype.Status, error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := apitype.ShowStatus.Ask(bounded, &localapi.Client{Home: home}, localapi.None{})
	switch {
	case errors.Is(err, localapi.ErrUnreachable) && nobodyListens(err):
		return stoppedStatus(home, noGateway), nil
	case err != nil && bounded.Err() != nil && ctx.Err() == nil:
		return s, bailey.Unavailable.Wrapf(err, "see "+home.LogFile()+"; run bailey gateway stop to end a gateway that still listens",
			"the gateway of %s does not answer within %v", home, patience)
	}
	return s, err
}

func (a *App) metricsVerb() *cobra.Command {
	return &cobra.Command{
		Use: "metrics", Short: "Print the running gateway's metrics for Prometheus",
		Long: `Print the counters of the running gateway in Prometheus' text format: calls by status and class,
durations of their stages, the ledger's size, open calls, sessions, suppressed calls, redactions by category.
It starts no gateway and opens no port: run it from a timer, for the textfile collector of node_exporter.`,
		Example: "  bailey metrics > metrics.new && mv metrics.new /var/lib/node_exporter/bailey.prom",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			home, err := localapi.FindHome()
			if err != nil {
				return err
			}
			r, err := apitype.ShowMetrics.Ask(cmd.Context(), &localapi.Client{Home: home}, localapi.None{})
			if err != nil {
				return withNoGatewayHint(home, err)
			}
			return a.PrintLine(r, "%s", r.Text)
		},
	}
}

// withNoGatewayHint adds a hint if no gateway is running.
func withNoGatewayHint(home localapi.Home, err error) error {
	if !errors.Is(err, localapi.ErrUnreachable) || bailey.HintOf(err) != "" {
		return err
	}
	return bailey.Unavailable.Wrap(err, "no gateway runs in "+string(home)+", and its counters ended with it",
		"make a call to start one, which counts from zero; bailey status shows what runs")
}

// Warn prints the warning before a command runs.
func (a *App) Warn(*cobra.Command, []string) {
	if a.Bare {
		fmt.Fprintln(a.Stderr, "bailey: "+apitype.Disabled)
	}
}

func (a *App) budgetVerb() *cobra.Command {
	return QueryVerb(a, &cobra.Command{
		Use: "budget", Short: "Show how much of their budgets agents have used",
		Long: `Show each budget of the policy, its use, and the start of the period. Budgets are defined in
budgets.yaml in the policy's directory and take effect with "bailey policy apply".`,
	}, apitype.ListBudgets, nil, printBudgets)
}

func printBudgets(w io.Writer, s apitype.Spendings) {
	if len(s.Budgets) == 0 {
		fmt.Fprintln(w, "the policy has no budgets")
		return
	}
	PrintTable(w, "BUDGET\tOF\tCALLS\tAT ONE TIME\tRAN\tCPU\tOUTPUT\tTOKENS IN\tTOKENS OUT\tPRICE\tUNTIL", s.Budgets, func(b apitype.Spending) []any {
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
		return []any{terminal.TableCell(b.Budget), cmp.Or(strings.TrimSpace(of), "-"),
			ofBound(b.Calls, b.Limit.Calls), ofBound(b.Open, b.Limit.Concurrent),
			ofBound(b.Wall.Round(time.Millisecond), b.Limit.Wall),
			ofBound(b.CPU.Round(time.Millisecond), b.Limit.CPU), ofBound(b.Output, b.Limit.Output),
			ofBound(b.InputTokens, b.Limit.InputTokens), ofBound(b.OutputTokens, b.Limit.OutputTokens),
			priceOf(b), until}
	})
}

// priceOf formats the price of models, with its limit if there is one.
func priceOf(b apitype.Spending) string {
	limit := ""
	if b.Limit.MicroUSD > 0 {
		limit = apitype.Dollars(b.Limit.MicroUSD)
	}
	return ofBound(apitype.Dollars(b.MicroUSD), limit)
}

// ofBound formats the usage of a budget, with the limit if there is one.
func ofBound[T comparable](used, bound T) string {
	if bound == *new(T) {
		return fmt.Sprint(used)
	}
	return fmt.Sprintf("%v of %v", used, bound)
}

func (a *App) killVerb() *cobra.Command {
	return QueryVerb(a, &cobra.Command{
		Use: "kill [REASON]", Short: "Stop all calls now",
		Long: `End all running calls at once, and refuse every later one until an operator runs "bailey resume".
This persists across restarts of the gateway. REASON is shown to agents and recorded in the receipts.`,
		Example: `  bailey kill "the agent deletes what it should not"`,
	}, apitype.KillCalls, func(args []string) (apitype.KillRequest, error) {
		reason := strings.Join(args, " ")
		if len(reason) > apitype.MaxKillReason || !utf8.ValidString(reason) {
			return apitype.KillRequest{}, bailey.Invalid.Errorf("shorten the reason, or leave it out",
				"a reason must be at most %d bytes of UTF-8", apitype.MaxKillReason)
		}
		return apitype.KillRequest{Reason: reason}, nil
	}, func(w io.Writer, k apitype.Killed) {
		fmt.Fprintf(w, "stopped: %s ended; every call is refused until you run: bailey resume\n",
			apitype.Counts(k.Calls, "call"))
	})
}

func (a *App) resumeVerb() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "resume", Short: "Allow calls again after kill", Args: cobra.NoArgs,
		Long: "Allow calls again. Ended calls stay ended.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			op, c, err := a.OperatorClient("resume")
			if err != nil {
				return err
			}
			now, err := apitype.ShowStatus.Ask(cmd.Context(), c, localapi.None{})
			if err != nil {
				return err
			}
			if now.Killed != nil && !a.Yes {
				fmt.Fprintln(a.Dialog(), apitype.KilledText(*now.Killed))
				if err := a.Confirm(cmd.Context(), "Allow calls again?"); err != nil {
					return err
				}
			}
			was, err := apitype.ResumeCalls.Do(cmd.Context(), c, op, localapi.None{})
			if err != nil {
				return err
			}
			return a.PrintLine(map[string]any{"ok": true, "was": was}, "calls are allowed again\n")
		},
	})
}
