package main

import (
	"cmp"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
)

// receiptRow is a receipt in a list.
type receiptRow struct {
	ID         bailey.ReceiptID    `json:"id"`
	Seq        uint64              `json:"seq"`
	Capability bailey.CapabilityID `json:"capability"`
	Outcome    bailey.Status       `json:"outcome"` // "open" while there is none
	Decision   string              `json:"decision"`
	Rule       string              `json:"rule"`
	Layers     []string            `json:"layers"`
	Executed   *bool               `json:"executed"` // null when nobody knows
	Agent      string              `json:"agent"`
	Session    bailey.SessionID    `json:"session"`
	Door       string              `json:"door"`
	Reason     string              `json:"reason,omitempty"`
	StartedAt  time.Time           `json:"startedAt"`
}

type receiptList struct {
	Receipts []receiptRow `json:"receipts"`
}

func newReceiptRow(r bailey.Receipt) receiptRow {
	row := receiptRow{
		ID: r.Intent.Receipt, Seq: r.Seq, Capability: r.Intent.Capability, Outcome: "open", Layers: []string{},
		Agent: r.Intent.Agent, Session: r.Intent.Session, Door: r.Intent.Door, StartedAt: r.Intent.StartedAt,
	}
	o := r.Outcome
	if o == nil {
		return row
	}
	row.Outcome, row.Decision, row.Executed, row.Reason = o.Status, o.Decision, o.Executed, o.Reason
	if len(o.Rules) > 0 {
		row.Rule = string(o.Rules[0].ID)
	}
	if o.Cage != nil && o.Executed != nil && *o.Executed {
		row.Layers = o.Cage.Layers
	}
	return row
}

// why is the last column of a list: the rule of what went well, the reason of what did not.
func (r receiptRow) why() string {
	if r.Outcome == bailey.OK {
		return r.Rule
	}
	return cmp.Or(r.Reason, r.Rule)
}

func (a *app) receiptsVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "receipts", Short: "What was asked, decided and done"}
	var limit int
	list := &cobra.Command{
		Use: "list", Short: "List receipts, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := gateway.Query{Verb: "receipts", Args: map[string]any{"limit": limit}}
			return look(cmd.Context(), a, q, func(l receiptList) {
				w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
				for _, r := range l.Receipts {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.StartedAt.Local().Format(time.DateTime), r.ID, cell(string(r.Capability)), r.Outcome, cell(r.why()))
				}
				w.Flush()
				if len(l.Receipts) == 0 {
					fmt.Fprintln(a.stderr, "bailey: no receipts yet")
				}
			})
		},
	}
	list.Flags().IntVar(&limit, "limit", 50, "how many at most")
	cmd.AddCommand(list, a.forgetVerb(), &cobra.Command{
		Use: "show RECEIPT", Short: "Show one receipt, whole, and what is kept of its arguments and output", Args: oneArg("a receipt"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := gateway.Query{Verb: "receipt", Args: map[string]any{"id": args[0]}}
			return look(cmd.Context(), a, q, func(r shownReceipt) { fmt.Fprintln(a.stdout, indentValue(r)) })
		},
	})
	return cmd
}
