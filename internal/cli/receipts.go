package cli

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/receipts"
	"bailey/internal/terminal"
)

func (a *App) receiptsVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "receipts", Short: "What was asked, decided and done"}
	var w receiptFilter
	var limit int
	var dir string
	list := &cobra.Command{
		Use: "list", Short: "List receipts, newest first", Args: cobra.NoArgs,
		Long:    "List receipts, newest first. Filters combine. An index finds them; what is shown is read from the ledger.\nbailey receipts export reads the ledger itself: take that where nothing may be missing.",
		Example: "  bailey receipts list --status denied --since 7d\n  bailey receipts list --capability git.push --since 2026-11-03T09:00:00Z --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := w.filter(time.Now())
			if err != nil {
				return err
			}
			if f.Limit = limit; limit < 1 || limit > receipts.MaxLimit {
				return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("--limit is from 1 to %d", receipts.MaxLimit), Hint: "--before goes on behind a list; bailey receipts export writes all"}
			}
			copied := func(r ReceiptReader) (apitype.ReceiptList, error) {
				page, err := r.Find(cmd.Context(), f)
				return apitype.NewReceiptList(page), err
			}
			return receiptsFrom(cmd.Context(), a, dir, localapi.Query{Verb: "receipts", Args: filterArgs(f)}, copied, a.listed)
		},
	}
	w.flags(list)
	list.Flags().IntVar(&limit, "limit", 50, "how many at most")
	list.Flags().Uint64Var(&w.Before, "before", 0, "only those before this `number`: goes on behind a list")
	copyFlag(list, &dir)
	cmd.AddCommand(list, a.forgetVerb(), a.showVerb(), a.exportVerb(), a.reportVerb())
	return cmd
}

func (a *App) showVerb() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "show RECEIPT", Short: "Show one receipt, whole, and what is kept of its arguments and output", Args: OneArg("a receipt"),
		Long: "Show one receipt, whole, and what is kept of its arguments and output. That there is none is said after the ledger\nwas read through. With --ledger the receipt alone is shown.",
		RunE: func(cmd *cobra.Command, args []string) error {
			id := bailey.ReceiptID(args[0])
			copied := func(r ReceiptReader) (apitype.ShownReceipt, error) {
				page, err := r.Find(cmd.Context(), receipts.Filter{ID: id, Limit: 1})
				if err == nil && (id == "" || len(page.Records) == 0) {
					err = apitype.NoReceipt(id)
				}
				if err != nil {
					return apitype.ShownReceipt{}, err
				}
				return apitype.ShownReceipt{Record: page.Records[0]}, nil
			}
			q := localapi.Query{Verb: "receipt", Args: map[string]any{"id": id}}
			return receiptsFrom(cmd.Context(), a, dir, q, copied, func(r apitype.ShownReceipt) { fmt.Fprintln(a.Stdout, terminal.IndentValue(r)) })
		},
	}
	copyFlag(cmd, &dir)
	return cmd
}

func (a *App) listed(l apitype.ReceiptList) {
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	for _, r := range l.Receipts {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.StartedAt.Local().Format(time.DateTime), r.ID, terminal.TableCell(string(r.Capability)+r.Below()), r.Status(), terminal.TableCell(r.Why()))
	}
	w.Flush()
	switch {
	case len(l.Receipts) == 0:
		fmt.Fprintln(a.Stderr, "bailey: no such receipts")
	case l.Next > 0:
		fmt.Fprintf(a.Stderr, "bailey: there are more: --before %d\n", l.Next)
	}
}
