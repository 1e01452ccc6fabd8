package main

import (
	"cmp"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/receipts"
	"bailey/internal/wire"
)

// receiptRow is a receipt in a list.
type receiptRow struct {
	ID         bailey.ReceiptID    `json:"id"`
	Seq        uint64              `json:"seq"`
	Capability bailey.CapabilityID `json:"capability"`
	Outcome    bailey.Status       `json:"outcome"` // "open" if it has not ended
	Decision   string              `json:"decision"`
	Rule       string              `json:"rule"`
	Layers     []string            `json:"layers"`
	Executed   *bool               `json:"executed"` // null if it is not known
	Agent      string              `json:"agent"`
	Session    bailey.SessionID    `json:"session"`
	Door       string              `json:"door"`
	Reason     string              `json:"reason,omitempty"`
	DryRun     bool                `json:"dryRun"`
	Within     bailey.ReceiptID    `json:"within,omitempty"` // the workflow of which it is a step
	Step       string              `json:"step,omitempty"`
	StartedAt  time.Time           `json:"startedAt"`
}

type receiptList struct {
	Receipts []receiptRow `json:"receipts"`
	Next     uint64       `json:"next,omitempty"` // set if there are more: --before NEXT
}

func newReceiptList(p receipts.Page) receiptList {
	out := receiptList{Receipts: []receiptRow{}}
	for _, r := range p.Records {
		out.Receipts = append(out.Receipts, newReceiptRow(r))
	}
	if p.More {
		out.Next = p.Records[len(p.Records)-1].Seq
	}
	return out
}

func newReceiptRow(r receipts.Record) receiptRow {
	row := receiptRow{
		ID: r.Intent.Receipt, Seq: r.Seq, Capability: r.Intent.Capability, Outcome: r.Status(), Layers: []string{},
		Agent: r.Intent.Agent, Session: r.Intent.Session, Door: r.Intent.Door, DryRun: r.Intent.DryRun, Within: r.Intent.Within, Step: r.Intent.Step,
		StartedAt: r.Intent.StartedAt,
	}
	o := r.Outcome
	if o == nil {
		return row
	}
	row.Decision, row.Executed, row.Reason = o.Decision, o.Executed, o.Reason
	if len(o.Rules) > 0 {
		row.Rule = string(o.Rules[0].ID)
	}
	if o.Cage != nil && o.Executed != nil && *o.Executed {
		row.Layers = o.Cage.Layers
	}
	return row
}

// status returns the outcome for a list. It marks dry runs, so that they are not mistaken for executed calls.
func (r receiptRow) status() string { return string(r.Outcome) + dryRun(r.DryRun) }

func dryRun(dry bool) string { return map[bool]string{true: " (dry run)"}[dry] }

// below names the workflow of which the call is a step.
func (r receiptRow) below() string {
	if r.Within == "" {
		return ""
	}
	return fmt.Sprintf(" (step %s of %s)", r.Step, r.Within)
}

// why returns the last column of a list: the rule if the call succeeded, else the reason.
func (r receiptRow) why() string {
	if r.Outcome == bailey.OK {
		return r.Rule
	}
	return cmp.Or(r.Reason, r.Rule)
}

func (a *app) receiptsVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "receipts", Short: "What was asked, decided and done"}
	var w wanted
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
			copied := func(r receiptReader) (receiptList, error) {
				page, err := r.Find(cmd.Context(), f)
				return newReceiptList(page), err
			}
			return receiptsFrom(cmd.Context(), a, dir, wire.Query{Verb: "receipts", Args: filterArgs(f)}, copied, a.listed)
		},
	}
	w.flags(list)
	list.Flags().IntVar(&limit, "limit", 50, "how many at most")
	list.Flags().Uint64Var(&w.Before, "before", 0, "only those before this `number`: goes on behind a list")
	copyFlag(list, &dir)
	cmd.AddCommand(list, a.forgetVerb(), a.showVerb(), a.exportVerb(), a.reportVerb())
	return cmd
}

func (a *app) showVerb() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "show RECEIPT", Short: "Show one receipt, whole, and what is kept of its arguments and output", Args: oneArg("a receipt"),
		Long: "Show one receipt, whole, and what is kept of its arguments and output. That there is none is said after the ledger\nwas read through. With --ledger the receipt alone is shown.",
		RunE: func(cmd *cobra.Command, args []string) error {
			id := bailey.ReceiptID(args[0])
			copied := func(r receiptReader) (shownReceipt, error) {
				page, err := r.Find(cmd.Context(), receipts.Filter{ID: id, Limit: 1})
				if err == nil && (id == "" || len(page.Records) == 0) {
					err = noReceipt(id)
				}
				if err != nil {
					return shownReceipt{}, err
				}
				return shownReceipt{Record: page.Records[0]}, nil
			}
			q := wire.Query{Verb: "receipt", Args: map[string]any{"id": id}}
			return receiptsFrom(cmd.Context(), a, dir, q, copied, func(r shownReceipt) { fmt.Fprintln(a.stdout, indentValue(r)) })
		},
	}
	copyFlag(cmd, &dir)
	return cmd
}

func (a *app) listed(l receiptList) {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, r := range l.Receipts {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.StartedAt.Local().Format(time.DateTime), r.ID, cell(string(r.Capability)+r.below()), r.status(), cell(r.why()))
	}
	w.Flush()
	switch {
	case len(l.Receipts) == 0:
		fmt.Fprintln(a.stderr, "bailey: no such receipts")
	case l.Next > 0:
		fmt.Fprintf(a.stderr, "bailey: there are more: --before %d\n", l.Next)
	}
}
