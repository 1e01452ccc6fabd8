package main

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/receipts"
	"bailey/internal/wire"
)

// forgetAct is the verb of the operator command `receipts forget`.
const forgetAct = "forget"

// shownReceipt is a receipt with its bodies, which are stored outside the ledger.
type shownReceipt struct {
	receipts.Record
	Bodies []shownBody `json:"bodies,omitempty"`
}

// shownBody is one part, as text or bytes, or the reason why it is not available.
type shownBody struct {
	Part   string `json:"part"`
	Length int    `json:"length"`
	Text   string `json:"text,omitempty"`
	Bytes  []byte `json:"bytes,omitempty"` // if it is not UTF-8
	Why    string `json:"why,omitempty"`
}

// show adds to a receipt the bodies that it names.
func (s *stack) show(r receipts.Record) shownReceipt {
	shown := shownReceipt{Record: r}
	add := func(part string, said *bailey.Body) {
		if said == nil {
			return
		}
		b := shownBody{Part: part, Length: said.Length}
		switch body, err := s.ledger.Body(r.Intent.Receipt, part, *said); {
		case err != nil:
			b.Why = err.Error()
		case utf8.Valid(body):
			b.Text = string(body)
		default:
			b.Bytes = body
		}
		shown.Bodies = append(shown.Bodies, b)
	}
	input := r.Intent.InputBody
	if o := r.Outcome; o != nil && o.InputBody != nil {
		input = o.InputBody // set if the intent's body was not stored
	}
	add(receipts.InputPart, input)
	if r.Outcome != nil {
		add(receipts.StdoutPart, r.Outcome.StdoutBody)
		add(receipts.StderrPart, r.Outcome.StderrBody)
	}
	return shown
}

func (a *app) forgetVerb() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "forget RECEIPT", Short: "Remove what is kept of a call beside the ledger",
		Long: `Remove the long arguments and the output that are kept of a call, and the salts of their commitments. The
receipt stays, with their lengths; that they were forgotten, and by whom, is an entry of the ledger, which
verifies as before. Nobody can tell any more what they were, and nobody can bring them back.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey receipts forget r-…",
		Args:    oneArg("a receipt, as in: bailey receipts forget r-…"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.forget(cmd.Context(), args[0], yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) forget(ctx context.Context, id string, yes bool) error {
	op, err := a.operator("receipts forget", yes)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	if !yes {
		if err := a.confirm(ctx, "Forget what is kept of "+visible(id)+", for ever?"); err != nil {
			return err
		}
	}
	var f receipts.Forgotten
	if err := act(ctx, c, op, forgetAct, map[string]any{"id": id}, &f); err != nil {
		return err
	}
	if a.json {
		return a.print(f)
	}
	fmt.Fprintf(a.stdout, "forgotten of %s: %s\n", f.Receipt, strings.Join(f.Parts, ", "))
	return nil
}

func (s *stack) forget(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	return s.ledger.Forget(ctx, receipts.Forgotten{
		Receipt: bailey.ReceiptID(text(q.Args, "id")), Operator: string(q.Operator), Person: from.Principal.Person})
}
