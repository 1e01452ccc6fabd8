package main

import (
	"context"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/audit"
	"bailey/internal/receipts"
)

// localWork is the work that commands do in their own process instead of asking the gateway. cmd/bailey passes the
// implementation, so that this package links neither the jail nor the ledger.
type localWork interface {
	// add adds the commands that work this way to the table of commands.
	add(a *app, root *cobra.Command)
	// begun reports whether the directory holds a ledger.
	begun(dir string) bool
	// ledger opens a ledger: if copied, a copy from another place, whose last line may be cut off.
	ledger(a *app, dir string, copied bool) (receiptReader, error)
	// verify verifies the ledger of the home, as bailey audit verify does, and prints the verdict.
	verify(ctx context.Context, a *app) error
}

// receiptReader reads the receipts of a ledger from its files.
type receiptReader interface {
	Find(ctx context.Context, f receipts.Filter) (receipts.Page, error)
	Each(ctx context.Context, f receipts.Filter, begin func(origin string, head audit.Head) error, do func(receipts.Record) error) error
	Body(id bailey.ReceiptID, part string, said bailey.Body) ([]byte, error)
	Close()
}
