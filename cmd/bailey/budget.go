package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/gateway"
	"bailey/internal/receipts"
	"bailey/internal/wire"
)

// spendings is the usage of all budgets.
type spendings struct {
	Budgets []gateway.Spending `json:"budgets"`
}

func (a *app) budgetVerb() *cobra.Command {
	return &cobra.Command{
		Use: "budget", Short: "What agents have used up of their budgets", Args: cobra.NoArgs,
		Long: `Show each budget of the policy, and what was used of it since when. Budgets stand in budgets.yaml of the policy's
directory and take effect by "bailey policy apply".`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return look(cmd.Context(), a, wire.Query{Verb: "budget"}, a.budgetWords)
		},
	}
}

func (s *stack) budget(context.Context, wire.Query, bailey.Call) (any, error) {
	return spendings{s.budgets.State()}, nil
}

// recallPatience limits how long a starting gateway makes clients wait for the past usage of budgets. After that it
// serves them, but denies the calls that a budget limits until the usage is known. A million calls take minutes to
// read, and the kill switch must not wait for them.
const recallPatience = time.Second

// holdBudgets blocks every call that a budget limits until rememberBudgets is done.
func (s *stack) holdBudgets() {
	if s.budgets.Memory() > 0 {
		s.budgets.Hold(&bailey.Error{Kind: bailey.Unavailable, Message: "what was used of the budgets is still read from the ledger", Hint: "call again in a minute"})
	}
}

// recallBudgets reads the past usage, then unblocks the calls. If it fails, they stay blocked. An operator can still
// apply a policy without budgets.
func (s *stack) recallBudgets(ctx context.Context) {
	err := s.rememberBudgets(ctx)
	if s.budgets.Hold(err); err != nil {
		s.log.Error("what was used of the budgets is not known", "err", err)
	}
}

// rememberBudgets counts the calls that other gateways handled earlier, as far back as a budget looks.
func (s *stack) rememberBudgets(ctx context.Context) error {
	memory := s.budgets.Memory()
	if memory == 0 {
		return nil
	}
	f := receipts.Filter{Since: time.Now().Add(-memory), Until: s.since, Oldest: true, Limit: receipts.MaxLimit}
	for {
		page, err := s.index.Find(ctx, f)
		if err != nil {
			return &bailey.Error{Kind: bailey.Unavailable, Message: "what was used of the budgets cannot be read from the ledger", Err: err, Hint: "bailey audit verify"}
		}
		for _, r := range page.Records {
			in, o := r.Intent, r.Outcome
			if f.After = r.Seq; o == nil || o.Executed != nil && !*o.Executed {
				continue
			}
			s.budgets.Remember(bailey.Request{Capability: in.Capability, Principal: bailey.Principal{Agent: in.Agent, Person: in.Person}}, in.StartedAt,
				gate.Use{Wall: time.Duration(o.RanMillis) * time.Millisecond, CPU: time.Duration(o.CPUMillis) * time.Millisecond, Output: o.StdoutBytes + o.StderrBytes})
		}
		if !page.More {
			return nil
		}
	}
}

func (a *app) budgetWords(s spendings) {
	if len(s.Budgets) == 0 {
		fmt.Fprintln(a.stdout, "the policy sets no budget")
		return
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BUDGET\tOF\tCALLS\tAT ONE TIME\tRAN\tCPU\tOUTPUT\tUNTIL")
	for _, b := range s.Budgets {
		of := ""
		for _, word := range []string{string(b.Session), b.Agent, b.Person, string(b.Capability)} {
			if word != "" {
				of += " " + cell(word)
			}
		}
		until := "the session ends"
		switch {
		case b.Until != nil:
			until = b.Until.Local().Format("2006-01-02 15:04")
		case !b.Limit.Session || b.Since.IsZero():
			until = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cell(b.Budget), cmp.Or(strings.TrimSpace(of), "-"),
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
