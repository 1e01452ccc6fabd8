package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/terminal"
)

// copyFlag adds the flag for a ledger other than that of the home.
func copyFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "ledger", "", "read the ledger in this `directory`, a copy say: asks no gateway, writes nothing")
	cmd.MarkFlagDirname("ledger")
}

// begun returns an error if the home has no ledger. Otherwise a query would start a gateway, which would create an
// empty ledger.
func (a *App) begun() error {
	home, err := localapi.FindHome()
	if err != nil {
		return err
	}
	if !a.Local.Begun(home.Ledger()) {
		return &bailey.Error{Kind: bailey.NotFound, Message: "there is no ledger in " + string(home), Hint: "BAILEY_HOME names the home; the first call begins its ledger. --ledger DIR looks into a copy"}
	}
	return nil
}

// reader opens the ledger in dir or, if dir is empty, the ledger of the home.
func (a *App) reader(dir string) (ReceiptReader, error) {
	if dir != "" {
		return a.Local.Ledger(a, dir, true)
	}
	if err := a.begun(); err != nil {
		return nil, err
	}
	home, err := localapi.FindHome()
	if err != nil {
		return nil, err
	}
	return a.Local.Ledger(a, home.Ledger(), false)
}

// terminal reports whether standard error is a terminal.
func (a *App) terminal() bool {
	f, ok := a.Stderr.(*os.File)
	return ok && terminal.Is(f)
}

// Progress returns a function that prints progress, or nil without a terminal.
func (a *App) Progress(what string) func(done, all int64) {
	if !a.terminal() {
		return nil
	}
	next := time.Now().Add(2 * time.Second)
	return func(done, all int64) {
		if now := time.Now(); now.After(next) {
			next = now.Add(5 * time.Second)
			fmt.Fprintf(a.Stderr, "bailey: %s: %d %%\n", what, done*100/all)
		}
	}
}

// patiently prints a message if the answer takes more than a second.
func (a *App) patiently(do func() error) error {
	if a.terminal() {
		defer time.AfterFunc(time.Second, func() {
			fmt.Fprintln(a.Stderr, "bailey: still looking: the first question after a lost index takes longest")
		}).Stop()
	}
	return do()
}

// receiptsFrom looks up receipts in the index of the gateway or, if dir is set, in the copy of a ledger.
func receiptsFrom[T any](ctx context.Context, a *App, dir string, q localapi.Query, copied func(ReceiptReader) (T, error), inWords func(T)) error {
	if dir == "" {
		if err := a.begun(); err != nil {
			return err
		}
		return a.patiently(func() error { return Query(ctx, a, q, inWords) })
	}
	r, err := a.reader(dir)
	if err != nil {
		return err
	}
	defer r.Close()
	answer, err := copied(r)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.Print(answer)
	}
	inWords(answer)
	return nil
}
