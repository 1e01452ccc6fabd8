package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/ledger"
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// copyFlag names a directory to look into instead of the home's ledger.
func copyFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "ledger", "", "read the ledger in this `directory`, a copy say: asks no gateway, writes nothing")
	cmd.MarkFlagDirname("ledger")
}

// begun refuses to look into a home that has no ledger: a gateway would begin one there, and find nothing in it.
func begun() error {
	home, err := wire.FindHome()
	if err != nil {
		return err
	}
	if !ledger.Begun(home.Ledger()) {
		return &bailey.Error{Kind: bailey.NotFound, Message: "there is no ledger in " + string(home), Hint: "BAILEY_HOME names the home; the first call begins its ledger. --ledger DIR looks into a copy"}
	}
	return nil
}

// reader opens the ledger that was named, or the home's.
func (a *app) reader(dir string) (*ledger.Reader, error) {
	if dir == "" {
		if err := begun(); err != nil {
			return nil, err
		}
		home, err := wire.FindHome()
		if err != nil {
			return nil, err
		}
		r, err := ledger.OpenReader(home.Ledger())
		if err == nil {
			r.Progress = a.progress("reading the ledger")
		}
		return r, err
	}
	r, err := ledger.OpenCopy(dir)
	if err != nil {
		return nil, err
	}
	if r.Progress = a.progress("reading the ledger"); r.Rest > 0 {
		fmt.Fprintf(a.stderr, "bailey: the last %d bytes are no whole line and are left out: bailey audit verify tells more\n", r.Rest)
	}
	return r, nil
}

// terminal tells whether a person watches what is said.
func (a *app) terminal() bool {
	f, ok := a.stderr.(*os.File)
	return ok && terminal.Is(f)
}

// progress tells who watches how far something long has come; nil tells nobody.
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

// patiently says why an answer takes long.
func (a *app) patiently(do func() error) error {
	if a.terminal() {
		defer time.AfterFunc(time.Second, func() {
			fmt.Fprintln(a.stderr, "bailey: still looking: the first question after a lost index takes longest")
		}).Stop()
	}
	return do()
}

// receiptsFrom looks receipts up where dir says. By the gateway its index answers, and of a copy the copy.
func receiptsFrom[T any](ctx context.Context, a *app, dir string, q wire.Query, copied func(*ledger.Reader) (T, error), inWords func(T)) error {
	if dir == "" {
		if err := begun(); err != nil {
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
