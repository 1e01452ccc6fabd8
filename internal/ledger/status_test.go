package ledger

import (
	"context"
	"testing"

	"bailey"
	"bailey/internal/receipts"
)

// TestEveryStatusIsKept checks that the ledger contains each status as it was sealed, and that a call that was not
// sealed is interrupted at the next start.
func TestEveryStatusIsKept(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	want := map[bailey.ReceiptID]bailey.Status{}
	for _, status := range []bailey.Status{bailey.OK, bailey.Refused, bailey.Pending, bailey.Failed, bailey.Killed, bailey.Interrupted} {
		in := intent()
		seal, err := l.Open(context.Background(), in)
		do(t, err)
		want[in.Receipt] = status
		if status != bailey.Interrupted {
			do(t, seal(bailey.Outcome{Status: status, Executed: new(true)}))
		}
	}
	do(t, l.Close())
	l = open(t, Config{Dir: dir})
	list, err := l.Receipts(receipts.Filter{})
	do(t, err)
	for _, r := range list {
		if r.Outcome == nil || r.Outcome.Status != want[r.Intent.Receipt] {
			t.Errorf("%s: %+v, want %s", r.Intent.Receipt, r.Outcome, want[r.Intent.Receipt])
		}
		if r.Outcome.Status == bailey.Interrupted && r.Outcome.Executed != nil {
			t.Error("nobody knows whether it ran")
		}
		delete(want, r.Intent.Receipt)
	}
	if len(want) != 0 {
		t.Errorf("without a receipt: %v", want)
	}
}
