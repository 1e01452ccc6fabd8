package cli

import (
	"context"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/audit"
	"bailey/internal/receipts"
)

// Local is the work that commands do in their own process instead of asking the gateway. cmd/bailey passes the
// implementation, so that this package links neither the jail nor the ledger.
type Local interface {
	// Add adds the commands that work this way to the table of commands.
	Add(a *App, root *cobra.Command)
	// Begun reports whether the directory holds a ledger.
	Begun(dir string) bool
	// Ledger opens a ledger: if copied, a copy from another place, whose last line may be cut off.
	Ledger(a *App, dir string, copied bool) (ReceiptReader, error)
	// Verify verifies the ledger of the home, as bailey audit verify does, and prints the verdict.
	Verify(ctx context.Context, a *App) error
}

// ReceiptReader reads the receipts of a ledger from its files.
type ReceiptReader interface {
	Find(ctx context.Context, f receipts.Filter) (receipts.Page, error)
	Each(ctx context.Context, f receipts.Filter, begin func(origin string, head audit.Head) error, do func(receipts.Record) error) error
	Body(id bailey.ReceiptID, part string, said bailey.Body) ([]byte, error)
	Close()
}
