package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger"
	"bailey/internal/safefile"
	"bailey/internal/wire"
)

// Replies of the gateway to the audit commands.
type (
	checkpointReply struct {
		OK      bool             `json:"ok"`
		Signed  string           `json:"signed"` // the signed note
		Says    audit.Checkpoint `json:"checkpoint"`
		Key     audit.Key        `json:"key"`
		Request string           `json:"request,omitempty"` // request for a witness
	}
	keyReply struct {
		OK      bool       `json:"ok"`
		Key     audit.Key  `json:"key"`
		Old     *audit.Key `json:"old,omitempty"`
		Changed bool       `json:"changed"`
	}
	proofReply struct {
		OK      bool             `json:"ok"`
		ID      bailey.ReceiptID `json:"receiptId"`
		Receipt string           `json:"receipt"`
	}
)

// rotateAct is the operator command of `audit key --rotate`, and the ledger event that records the operator.
const rotateAct = "audit.rotate"

func (a *app) auditCheckpointVerb() *cobra.Command {
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

func (a *app) checkpoint(ctx context.Context, urls []string, witnesses []audit.Key, since int64) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	args := map[string]any{}
	if since >= 0 {
		args["since"] = since
	}
	var r checkpointReply
	if err := c.Look(ctx, wire.Query{Verb: "checkpoint", Args: args}, &r); err != nil {
		return err
	}
	for _, url := range urls {
		if err := cosigned(ctx, c, url, witnesses, &r); err != nil {
			if !a.json { // already signed and stored, so redirected output must have it
				fmt.Fprint(a.stdout, r.Signed)
			}
			return err
		}
	}
	switch {
	case a.json:
		return a.print(r)
	case since >= 0:
		fmt.Fprint(a.stdout, r.Request)
	default:
		fmt.Fprint(a.stdout, r.Signed)
	}
	return nil
}

func (a *app) auditKeyVerb() *cobra.Command {
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
			show := func(k keyReply) { fmt.Fprintln(a.stdout, k.Key) }
			if !rotate {
				return look(cmd.Context(), a, wire.Query{Verb: "key"}, show)
			}
			op, err := a.operator("audit key --rotate", yes)
			if err != nil {
				return err
			}
			if !yes {
				if err := a.confirm(cmd.Context(), "Have the log sign with another key from now on?"); err != nil {
					return err
				}
			}
			return look(cmd.Context(), a, wire.Query{Verb: rotateAct, Operator: op}, show)
		},
	}
	cmd.Flags().BoolVar(&rotate, "rotate", false, "sign with another key from now on")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) auditProveVerb() *cobra.Command {
	return &cobra.Command{
		Use: "prove RECEIPT", Short: "Print a receipt that verifies without the ledger",
		Long: `Print a portable receipt: the receipt's entries, each with the proof that it stands in the ledger, and the checkpoint that
signs that. Whoever has the log's key verifies it with nothing else: bailey audit verify --receipt FILE --key KEY.

It takes the newest checkpoint that is kept and has the receipt in it, one that witnesses cosigned before another. Where there
is none it signs one, as bailey audit checkpoint does: the newest that carries cosignatures is kept beside it.`,
		Example: "  bailey audit prove r-… > receipt",
		Args:    oneArg("a receipt, as bailey receipts list shows them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := wire.Query{Verb: "prove", Args: map[string]any{"id": args[0]}}
			return look(cmd.Context(), a, q, func(r proofReply) { fmt.Fprint(a.stdout, r.Receipt) })
		},
	}
}

// openNotary creates the notary, which signs checkpoints of the ledger.
func openNotary(home wire.Home, log *ledger.Log, newest []byte, keys ledger.Keys) (*ledger.Notary, error) {
	cosigned, err := keptNote(home.Cosigned())
	if err != nil {
		return nil, err
	}
	keep := func(name string) func(signed []byte) error {
		return func(signed []byte) error {
			root, err := os.OpenRoot(string(home))
			if err != nil {
				return err
			}
			defer root.Close()
			return safefile.Replace(root, name, signed, 0o600, func() error { return nil })
		}
	}
	return ledger.NewNotary(ledger.NotaryConfig{Log: log, Keys: keys,
		Newest: newest, Keep: keep(wire.CheckpointName), Cosigned: cosigned, KeepCosigned: keep(wire.CosignedName)}), nil
}

// checkpoint is a query: it does not change the behavior of the gate.
func (s *stack) checkpoint(ctx context.Context, q wire.Query, _ bailey.Call) (any, error) {
	signed, err := s.notary.Sign(ctx)
	if err != nil {
		return nil, err
	}
	return s.signed(ctx, q, signed)
}

func (s *stack) signed(ctx context.Context, q wire.Query, signed []byte) (any, error) {
	key, err := s.notary.Key(ctx)
	if err != nil {
		return nil, err
	}
	says, err := audit.ReadCheckpoint(signed)
	if err != nil {
		return nil, err
	}
	r := checkpointReply{OK: true, Signed: string(signed), Says: says, Key: key}
	if _, wanted := q.Args["since"]; wanted {
		old := uint64(max(0, number(q.Args, "since")))
		proof, err := s.notary.Consistency(old, signed)
		if err != nil {
			return nil, err
		}
		r.Request = string(audit.Request{Old: old, Proof: proof, Checkpoint: signed}.Text())
	}
	return r, nil
}

// request is a query. It returns the request to a witness for the newest checkpoint.
func (s *stack) request(ctx context.Context, q wire.Query, _ bailey.Call) (any, error) {
	signed := s.notary.Newest()
	if signed == nil {
		return nil, &bailey.Error{Kind: bailey.NotFound, Message: "there is no checkpoint yet", Hint: "bailey audit checkpoint signs one"}
	}
	return s.signed(ctx, q, signed)
}

// cosign is a query. It stores the cosignatures that witnesses added to the newest checkpoint.
func (s *stack) cosign(ctx context.Context, q wire.Query, _ bailey.Call) (any, error) {
	signed := []byte(text(q.Args, "signed"))
	if err := s.notary.Cosigned(ctx, signed); err != nil {
		return nil, err
	}
	return s.signed(ctx, wire.Query{}, s.notary.Newest())
}

func (s *stack) key(ctx context.Context, _ wire.Query, _ bailey.Call) (any, error) {
	key, err := s.notary.Key(ctx)
	return keyReply{OK: err == nil, Key: key}, err
}

// rotate is a command. The new key signs at once, so that the key of the newest checkpoint can still sign.
func (s *stack) rotate(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	old, err := s.notary.Key(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.keyring(s.home).mayLeave(old.Public()); err != nil {
		return nil, err
	}
	change, err := s.notary.Rotate(ctx)
	if err != nil {
		return nil, err
	}
	event := map[string]any{"key": change.Key, "old": change.Old, "operator": q.Operator, "person": from.Principal.Person}
	if err := s.scribe.note(ctx, rotateAct, event); err != nil {
		return nil, err
	}
	_, err = s.notary.Sign(ctx)
	return keyReply{OK: err == nil, Key: change.Key, Old: change.Old, Changed: true}, err
}

func (s *stack) prove(ctx context.Context, q wire.Query, _ bailey.Call) (any, error) {
	id := bailey.ReceiptID(text(q.Args, "id"))
	r, err := s.notary.Prove(ctx, id)
	return proofReply{OK: err == nil, ID: id, Receipt: string(r)}, err
}
