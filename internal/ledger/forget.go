package ledger

import (
	"context"

	"bailey"
	"bailey/internal/receipts"
)

// ForgetEvent is the kind of the entry that records which bodies were forgotten.
const ForgetEvent = "forget"

// Body returns a part of a receipt that is kept beside the ledger and matches the receipt, or an error with the reason.
func (l *Log) Body(id bailey.ReceiptID, part string, said bailey.Body) ([]byte, error) {
	if !bodyName().MatchString(string(id) + "." + part) {
		return nil, bailey.Invalid.New("no receipt has that name", "")
	}
	return l.bodies.readBody(id, part, said)
}

// Forget removes the bodies of a receipt with their salts, and returns the parts. After that no party can tell their
// content. The entry that records this is durable first. The ledger verifies as before.
func (l *Log) Forget(ctx context.Context, f receipts.Forgotten) (receipts.Forgotten, error) {
	if !bodyName().MatchString(string(f.Receipt) + "." + receipts.InputPart) {
		return f, bailey.Invalid.New("no receipt has that name", "bailey receipts list shows them")
	}
	if f.Parts = l.bodies.existingParts(f.Receipt); len(f.Parts) == 0 {
		return f, bailey.NotFound.New("nothing of "+string(f.Receipt)+" is kept beside the ledger",
			"bailey receipts show says what there was")
	}
	if err := l.Note(ctx, ForgetEvent, f); err != nil {
		return f, err
	}
	err := l.bodies.markForgotten(f.Receipt)
	if err == nil {
		_, err = l.bodies.removeAllParts(f.Receipt)
	}
	if err != nil {
		return f, unavailableError(diskErrorHint(err)+"; then forget it once more", err,
			"the bodies of %s are not all gone", f.Receipt)
	}
	return f, nil
}

// keepInput begins to write an intent's input while the intent goes to the disk. The returned function waits until the
// input is written. It returns nil, or a Body that says that the input is not stored.
func (l *Log) keepInput(in *bailey.Intent) (wait func() *bailey.Body) {
	if in.InputBody == nil {
		return func() *bailey.Body { return nil }
	}
	said, salt := commitBody(in.InputBody)
	in.InputBody = said
	done := make(chan error, 1)
	go func() { done <- l.bodies.writeBody(in.Receipt, receipts.InputPart, salt, said.Bytes) }()
	return func() *bailey.Body {
		if err := <-done; err != nil {
			return l.notStored(in.Receipt, receipts.InputPart, said, err)
		}
		return nil
	}
}

// keepOutput stores the output of a tool and records the result in the outcome.
func (l *Log) keepOutput(o *bailey.Outcome) {
	for part, body := range map[string]**bailey.Body{receipts.StdoutPart: &o.StdoutBody,
		receipts.StderrPart: &o.StderrBody} {
		if *body == nil {
			continue
		}
		if l.noOutput {
			*body = nil
			continue
		}
		said, salt := commitBody(*body)
		if err := l.bodies.writeBody(o.Receipt, part, salt, said.Bytes); err != nil {
			said = l.notStored(o.Receipt, part, said, err)
		}
		*body = said
	}
}

func (l *Log) notStored(id bailey.ReceiptID, part string, said *bailey.Body, err error) *bailey.Body {
	l.log.Warn("a body is not stored", "receipt", id, "part", part, "bytes", said.Length, "err", err)
	return &bailey.Body{Length: said.Length, State: bailey.NotStored}
}
