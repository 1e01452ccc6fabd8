package cli

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/packstore"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
	"bailey/internal/receipts"
	"bailey/internal/terminal"
	"bailey/pack"
)

// stretch selects the part of the ledger to examine.
type stretch struct {
	receiptFilter
	dir string // of a copy of a ledger; "" for the ledger of the home
}

func (s *stretch) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.since, "since", "", "calls that started so long ago or later: `7d`, 36h, 90m, a date, or a time as in 2026-11-03T09:00:00Z")
	f.StringVar(&s.until, "until", "", "calls that started before that: `1d`, a date or a time")
	copyFlag(cmd, &s.dir)
}

func (a *App) policyReplay() *cobra.Command {
	var s stretch
	var with string
	cmd := &cobra.Command{
		Use: "replay [DIR] [--since 7d]", Short: "Say which decisions of the past these rules would change", Args: cobra.MaximumNArgs(1),
		Long: `Decide the calls of the past again by the rules in DIR, or in $BAILEY_HOME/policy, and list every decision that would be another, with
the rule that makes it so. Nothing takes effect. The ledger's files are read and checked, and no gateway is asked.

A receipt does not hold everything. A call that cannot be decided again is counted with the reason: it is open, ended
or met a wall before any rule was asked, its capability is not there any more, or a rule looks at what the receipt
hides. Dry runs are decided like calls. The exit code does not tell whether anything would change.`,
		Example: "  bailey policy replay --since 7d --with ./policy",
		RunE: func(cmd *cobra.Command, args []string) error {
			if with != "" {
				args = append(args, with)
			}
			if len(args) > 1 {
				return &bailey.Error{Kind: bailey.Invalid, Message: "two directories of rules are named", Hint: "name one, as DIR or with --with"}
			}
			home, err := localapi.FindHome()
			if err != nil {
				return err
			}
			dir, err := policyDirOf(home, args)
			if err != nil {
				return err
			}
			files, err := policyfiles.ReadDir(dir)
			if err != nil {
				return err
			}
			catalog, err := packstore.BuiltIn()
			if err != nil {
				return err
			}
			e, err := policy.Load(policy.Config{Sources: files.Rules, Actions: policyfiles.Actions(catalog)})
			if err != nil {
				return err
			}
			var report policy.Report
			err = a.through(cmd.Context(), &s, catalog, func(past iter.Seq[policy.Past]) error {
				report = policy.Replay(e, past)
				return nil
			})
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Print(report)
			}
			writeReplay(a.Stdout, report)
			return nil
		},
	}
	s.flags(cmd)
	cmd.Flags().StringVar(&with, "with", "", "the rules: a `directory` of *.cedar files")
	cmd.MarkFlagDirname("with")
	return cmd
}

// through calls do with the selected past calls.
func (a *App) through(ctx context.Context, s *stretch, catalog *pack.Catalog, do func(iter.Seq[policy.Past]) error) error {
	f, err := s.filter(time.Now())
	if err != nil {
		return err
	}
	r, err := a.reader(s.dir)
	if err != nil {
		return err
	}
	defer r.Close()
	h := policyfiles.RequestRebuilder{Catalog: catalog, Body: func(id bailey.ReceiptID, said bailey.Body) ([]byte, error) {
		return r.Body(id, receipts.InputPart, said)
	}}
	var failed error
	err = do(h.Pasts(ctx, r, f, &failed))
	if failed != nil {
		return failed
	}
	return err
}

// writeReplay prints a table with one line for each kind of changed decision.
func writeReplay(w io.Writer, r policy.Report) {
	if len(r.Changes) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "CALLS\tCAPABILITY\tWAS\tWOULD BE\tBECAUSE\tFIRST\tLAST")
		for _, c := range r.Changes {
			why := strings.Join(c.Rules, ", ")
			if why == "" {
				why = c.Reason
			}
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Calls, terminal.TableCell(string(c.Capability)), c.From, c.To, terminal.TableCell(why), terminal.Shown(string(c.First)), terminal.Shown(string(c.Last)))
		}
		t.Flush()
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%d calls: %d decided as they were, %d otherwise, %d not to be decided again\n", r.Calls, r.Same, r.Changed, r.Undecided)
	if r.NotListed > 0 {
		fmt.Fprintf(w, "  %d of those that change are of further kinds, and not listed\n", r.NotListed)
	}
	if r.DryRuns > 0 {
		fmt.Fprintf(w, "  %d were dry runs\n", r.DryRuns)
	}
	writeCauses(w, "not decided", r.Causes)
	writeCauses(w, "to bear in mind", r.Marked)
}

func writeCauses(w io.Writer, what string, list []policy.Cause) {
	for _, c := range list {
		fmt.Fprintf(w, "  %s: %d, %s (%s)\n", what, c.Calls, c.Why, terminal.Shown(string(c.First)))
	}
}
