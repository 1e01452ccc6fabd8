package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// copyFlag adds the flag for a ledger other than that of the home.
func copyFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "ledger", "", "read the ledger in this `directory`, a copy say: asks no gateway, writes nothing")
	cmd.MarkFlagDirname("ledger")
}

// begun returns an error if the home has no ledger. Otherwise a query would start a gateway, which would create an
// empty ledger.
func (a *app) begun() error {
	home, err := wire.FindHome()
	if err != nil {
		return err
	}
	if !a.local.begun(home.Ledger()) {
		return &bailey.Error{Kind: bailey.NotFound, Message: "there is no ledger in " + string(home), Hint: "BAILEY_HOME names the home; the first call begins its ledger. --ledger DIR looks into a copy"}
	}
	return nil
}

// reader opens the ledger in dir or, if dir is empty, the ledger of the home.
func (a *app) reader(dir string) (receiptReader, error) {
	if dir != "" {
		return a.local.ledger(a, dir, true)
	}
	if err := a.begun(); err != nil {
		return nil, err
	}
	home, err := wire.FindHome()
	if err != nil {
		return nil, err
	}
	return a.local.ledger(a, home.Ledger(), false)
}

// terminal reports whether standard error is a terminal.
func (a *app) terminal() bool {
	f, ok := a.stderr.(*os.File)
	return ok && terminal.Is(f)
}

// progress returns a function that prints progress, or nil without a terminal.
func (a *app) progress(what string) func(done, all int64) {
	if !a.terminal() {
		return nil
	}
	next := time.Now().Add(2 * time.Second)
	return func(done, all int64) {
		if now := time.Now(); now.After(next) {
			next = now.Add(5 * time.Second)
			fmt.Fprintf(a.stderr, "bailey: %s: %d %%\n", what, done*100/all)
		}
	}
}

// patiently prints a message if the answer takes more than a second.
func (a *app) patiently(do func() error) error {
	if a.terminal() {
		defer time.AfterFunc(time.Second, func() {
			fmt.Fprintln(a.stderr, "bailey: still looking: the first question after a lost index takes longest")
		}).Stop()
	}
	return do()
}

// receiptsFrom looks up receipts in the index of the gateway or, if dir is set, in the copy of a ledger.
func receiptsFrom[T any](ctx context.Context, a *app, dir string, q wire.Query, copied func(receiptReader) (T, error), inWords func(T)) error {
	if dir == "" {
		if err := a.begun(); err != nil {
			return err
		}
		return a.patiently(func() error { return look(ctx, a, q, inWords) })
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
	if a.json {
		return a.print(answer)
	}
	inWords(answer)
	return nil
}
