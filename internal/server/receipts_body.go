package server

import (
	"context"
	"unicode/utf8"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/receipts"
)

// show adds to a receipt the bodies that it names.
func (s *Server) show(r receipts.Record) apitype.ShownReceipt {
	shown := apitype.ShownReceipt{Record: r}
	add := func(part string, said *bailey.Body) {
		if said == nil {
			return
		}
		b := apitype.ShownBody{Part: part, Length: said.Length}
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

func (s *Server) forget(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	return s.ledger.Forget(ctx, receipts.Forgotten{
		Receipt: bailey.ReceiptID(text(q.Args, "id")), Operator: string(q.Operator), Person: from.Principal.Person})
}
