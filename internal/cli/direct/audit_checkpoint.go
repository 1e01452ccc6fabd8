package direct

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/audit"
	"bailey/internal/cli"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

func (a *commands) auditCheckpointVerb() *cobra.Command {
	var urls, keys []string
	var since int64
	cmd := &cobra.Command{
		Use: "checkpoint", Short: "Sign what the ledger holds now, and print it",
		Long: `Sign what the ledger holds now and print that: a note of some two hundred bytes (c2sp.org/tlog-checkpoint). Keep it
where the gateway's machine cannot reach. Held against it, the ledger shows later whether it was cut, put back or written
anew: bailey audit verify --against FILE. It becomes the home's newest, and the log never signs less.

--witness asks a witness to cosign it, and --witness-key names the key that must have: a cosignature that nobody
verified is not kept. --since N prints what a witness that saw N entries has to be given, for bailey audit witness.`,
		Example: "  bailey audit checkpoint > checkpoint-$(date -I)",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			witnesses, err := parseKeys("--witness-key", keys, true)
			if err != nil {
				return err
			}
			if since < 0 && cmd.Flags().Changed("since") {
				return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("--since %d is less than no entries", since), Hint: "give how many entries the witness saw, 0 for one that saw none"}
			}
			if len(urls) > 0 && len(witnesses) == 0 {
				return &bailey.Error{Kind: bailey.Invalid, Message: "a witness without its key", Hint: "add --witness-key KEY, as bailey audit witness --show prints it"}
			}
			return a.checkpoint(cmd.Context(), urls, witnesses, since)
		},
	}
	cmd.Flags().StringArrayVar(&urls, "witness", nil, "the `URL` of a witness; may be repeated")
	cmd.Flags().StringArrayVar(&keys, "witness-key", nil, "the `key` of a witness; may be repeated")
	cmd.Flags().Int64Var(&since, "since", -1, "print the request to a witness that saw `N` entries, 0 for one that saw none")
	return cmd
}

func (a *commands) checkpoint(ctx context.Context, urls []string, witnesses []audit.Key, since int64) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	args := map[string]any{}
	if since >= 0 {
		args["since"] = since
	}
	var r apitype.CheckpointReply
	if err := c.Look(ctx, localapi.Query{Verb: "checkpoint", Args: args}, &r); err != nil {
		return err
	}
	for _, url := range urls {
		if err := cosigned(ctx, c, url, witnesses, &r); err != nil {
			if !a.JSON { // already signed and stored, so redirected output must have it
				fmt.Fprint(a.Stdout, r.Signed)
			}
			return err
		}
	}
	switch {
	case a.JSON:
		return a.Print(r)
	case since >= 0:
		fmt.Fprint(a.Stdout, r.Request)
	default:
		fmt.Fprint(a.Stdout, r.Signed)
	}
	return nil
}

func (a *commands) auditKeyVerb() *cobra.Command {
	var rotate, yes bool
	cmd := &cobra.Command{
		Use: "key", Short: "Show the key with which the log signs, for auditors",
		Long: `Show the public key with which the log signs its checkpoints. It is made at first use and announced in the ledger. Hand it
to auditors by another way than the ledger.

--rotate has the log sign with another key from now on. The ledger records the change, signed by the key before, whose
private half is removed; who trusts the first key trusts those after it. Where settings.yaml says checkpointKey, a home's key
is followed by one of the broker's, and that one by none. An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := func(k apitype.KeyReply) { fmt.Fprintln(a.Stdout, k.Key) }
			if !rotate {
				return cli.Query(cmd.Context(), a.App, localapi.Query{Verb: "key"}, show)
			}
			op, err := a.Operator("audit key --rotate", yes)
			if err != nil {
				return err
			}
			if !yes {
				if err := a.Confirm(cmd.Context(), "Have the log sign with another key from now on?"); err != nil {
					return err
				}
			}
			return cli.Query(cmd.Context(), a.App, localapi.Query{Verb: apitype.RotateCommand, Operator: op}, show)
		},
	}
	cmd.Flags().BoolVar(&rotate, "rotate", false, "sign with another key from now on")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *commands) auditProveVerb() *cobra.Command {
	return &cobra.Command{
		Use: "prove RECEIPT", Short: "Print a receipt that verifies without the ledger",
		Long: `Print a portable receipt: the receipt's entries, each with the proof that it stands in the ledger, and the checkpoint that
signs that. Whoever has the log's key verifies it with nothing else: bailey audit verify --receipt FILE --key KEY.

It takes the newest checkpoint that is kept and has the receipt in it, one that witnesses cosigned before another. Where there
is none it signs one, as bailey audit checkpoint does: the newest that carries cosignatures is kept beside it.`,
		Example: "  bailey audit prove r-… > receipt",
		Args:    cli.OneArg("a receipt, as bailey receipts list shows them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := localapi.Query{Verb: "prove", Args: map[string]any{"id": args[0]}}
			return cli.Query(cmd.Context(), a.App, q, func(r apitype.ProofReply) { fmt.Fprint(a.Stdout, r.Receipt) })
		},
	}
}
