package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/audit"
	"bailey/internal/gateway"
	"bailey/internal/ledger"
)

func (a *app) auditVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Verify the ledger"}
	cmd.AddCommand(&cobra.Command{
		Use: "verify [DIR]", Short: "Verify the ledger's chain: reads files only, starts nothing, repairs nothing",
		Long: `Verify the ledger's chain, that each intent has at most one outcome, and that the plan of each
cage that an outcome names is there and gives its digest. A plan is redacted where its text would
have held a secret: its digest cannot be recomputed.

It reads $BAILEY_HOME/ledger, or the directory named. Exit code 1 and the entry's number
when it does not hold. Without a witness the log proves order, not honesty: whoever can
write the file and has this program can write another one that verifies. And what did not
pass the gate is not in it.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := ledgerDir(args)
			if err != nil {
				return err
			}
			report, err := ledger.Verify(dir)
			if err != nil {
				return err
			}
			return a.verdict(dir, report)
		},
	})
	return cmd
}

func ledgerDir(args []string) (string, error) {
	if len(args) == 1 {
		return args[0], nil
	}
	home, err := gateway.FindHome()
	return home.Ledger(), err
}

func (a *app) verdict(dir string, r audit.Report) error {
	switch {
	case a.json:
		if err := a.print(r); err != nil {
			return err
		}
	case r.OK:
		fmt.Fprintf(a.stdout, "ok: %d entries, %d calls (%d open), head %s\n", r.Entries, r.Intents, r.Open, r.Head)
		fmt.Fprintf(a.stdout, "plans: %d recomputed, %d redacted\n", r.Plans.Recomputed, r.Plans.Redacted)
	case r.FirstBad.Reason == audit.Empty:
		a.say(string(bailey.NotFound), "there is no ledger in "+dir, "a home has one after its first call; bailey audit verify DIR looks elsewhere")
	default:
		a.say(string(bailey.Invalid), r.FirstBad.Error(), "keep the file as it is and compare it with a copy; a gateway will not append to it")
	}
	if !r.OK {
		return exit(exitDenied)
	}
	return nil
}
