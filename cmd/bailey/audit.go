package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/audit"
	"bailey/internal/gateway"
	"bailey/internal/ledger"
)

func (a *app) auditVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Verify the ledger, and have it signed and witnessed"}
	cmd.AddCommand(a.auditVerifyVerb(), a.auditCheckpointVerb(), a.auditKeyVerb(), a.auditProveVerb(), a.auditWitnessVerb())
	return cmd
}

// verifying is what the flags of audit verify say.
type verifying struct {
	against, keys, witnesses []string
	quorum                   int
	receipt                  string
}

func (a *app) auditVerifyVerb() *cobra.Command {
	var v verifying
	cmd := &cobra.Command{
		Use: "verify [DIR]", Short: "Verify the ledger: reads files only, starts nothing, repairs nothing",
		Long: `Verify the ledger's chain, that each intent has at most one outcome, and that the plan of each
cage that an outcome names is there and gives its digest. A plan is redacted where its text would
have held a secret: its digest cannot be recomputed.

It reads $BAILEY_HOME/ledger and the checkpoint beside it, or the directory named. --against holds the ledger
against a checkpoint that was kept elsewhere, --key names the log's key as it reached you by another way than
the ledger, --witness and --quorum whose cosignatures a checkpoint needs. Without --key the keys that the ledger
announces are taken at their word. --receipt verifies a portable receipt and reads no ledger.

It takes no lock and may run while a gateway writes: a last line that is not whole yet is looked at again, and
is a torn tail only when it has not moved a fifth of a second later.

Exit code 1, with the entry and the reason, when it does not hold. Without a witness the log proves order, not
honesty: whoever can write the file and has the log's key can write another one that verifies. And what did
not pass the gate is not in it.`,
		Example: "  bailey audit verify --against morning --key bailey/castle/…+a46ec510+AYqI…",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if v.receipt != "" {
				return a.verifyReceipt(v, args)
			}
			return a.verify(v, args)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&v.against, "against", nil, "a signed checkpoint that was kept elsewhere, a `file`; may be repeated")
	f.StringArrayVar(&v.keys, "key", nil, "a `key` of the log, as bailey audit key prints it; may be repeated")
	f.StringArrayVar(&v.witnesses, "witness", nil, "the `key` of a witness; may be repeated")
	f.IntVar(&v.quorum, "quorum", 0, "how many of the witnesses have to have cosigned")
	f.StringVar(&v.receipt, "receipt", "", "verify a portable receipt, a `file`")
	return cmd
}

// trust is what the flags name.
func (v verifying) trust() (t audit.Trust, err error) {
	t.Quorum = v.quorum
	if t.Keys, err = parseKeys("--key", v.keys, false); err == nil {
		t.Witnesses, err = parseKeys("--witness", v.witnesses, true)
	}
	if err == nil && (v.quorum < 0 || v.quorum > len(t.Witnesses)) {
		err = &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("--quorum %d of %d witnesses", v.quorum, len(t.Witnesses)), Hint: "name each witness with --witness KEY"}
	}
	return t, err
}

func parseKeys(flag string, texts []string, witness bool) ([]audit.Key, error) {
	var keys []audit.Key
	for _, text := range texts {
		k, err := audit.ParseKey(strings.TrimSpace(text))
		if err == nil && k.Witness() != witness {
			err = errors.New("it is the other kind of key: a log signs, a witness cosigns")
		}
		if err != nil {
			return nil, &bailey.Error{Kind: bailey.Invalid, Message: flag + " " + shown(text) + " is no such key", Err: err,
				Hint: "a log's is what bailey audit key prints, a witness's what bailey audit witness --show prints"}
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func (a *app) verify(v verifying, args []string) error {
	dir, check, err := v.check(args)
	if err != nil {
		return err
	}
	report, err := ledger.VerifyAgainst(dir, check)
	if err != nil {
		return err
	}
	return a.verdict(dir, report, check.Own)
}

// check returns what is verified, and what it is held against.
func (v verifying) check(args []string) (dir string, c audit.Check, err error) {
	if c.Trust, err = v.trust(); err != nil {
		return "", c, err
	}
	for _, name := range v.against {
		signed, err := readNote(name)
		if err != nil {
			return "", c, unread(name, err)
		}
		c.Seen = append(c.Seen, signed)
	}
	if len(args) == 1 {
		return args[0], c, nil
	}
	home, err := gateway.FindHome()
	if err != nil {
		return "", c, err
	}
	if c.Newest, err = newest(home); err != nil {
		return "", c, err
	}
	if c.Newest != nil && len(v.keys) == 0 { // the home's own word: better than none
		c.Own, c.Trust.Keys = true, homeKeys(home, c.Newest)
	}
	return home.Ledger(), c, nil
}

// newest is the home's newest checkpoint, nil when it has none.
func newest(home gateway.Home) ([]byte, error) {
	signed, err := readNote(home.Checkpoint())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, unread(home.Checkpoint(), err)
	}
	return signed, nil
}

// homeKeys are the public halves of the home's keys: of a ledger that was rolled back to before its first key they
// still tell that it was.
func homeKeys(home gateway.Home, signed []byte) []audit.Key {
	c, err := audit.ReadCheckpoint(signed)
	if err != nil {
		return nil
	}
	var keys []audit.Key
	for _, public := range (ledger.KeyFiles{Dir: home.Keys()}).Publics() {
		if k, err := audit.LogKey(c.Origin, public); err == nil {
			keys = append(keys, k)
		}
	}
	return keys
}

// readNote reads a checkpoint's file. It waits for no pipe.
func readNote(name string) ([]byte, error) { return readBounded(name, audit.MaxNote) }

func readBounded(name string, most int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("it is no regular file")}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("it is over the %d bytes allowed", most)}
	}
	return b, err
}

func unread(name string, err error) error {
	return &bailey.Error{Kind: bailey.Invalid, Message: "the file " + shown(name) + " cannot be read", Err: err, Hint: "name a file that bailey audit wrote"}
}

// ruling is a report as JSON shows it.
type ruling struct {
	audit.Report
	Proves     []string `json:"proves"`
	LeavesOpen []string `json:"leavesOpen"`
}

// rule says what a report stands for.
func rule(r audit.Report, own bool) ruling {
	out := ruling{Report: r, Proves: []string{}, LeavesOpen: r.LeavesOpen()}
	if r.OK {
		out.Proves = r.Proves()
	}
	if own {
		out.LeavesOpen = append([]string{"the keys are the home's own word: whoever can write the home can exchange them; give --key"}, out.LeavesOpen...)
	}
	return out
}

func (a *app) verdict(dir string, r audit.Report, own bool) error {
	said := rule(r, own)
	switch {
	case a.json:
		if err := a.print(said); err != nil {
			return err
		}
	case r.OK:
		fmt.Fprintf(a.stdout, "ok: %d entries, %d calls (%d open), head %s\n", r.Entries, r.Intents, r.Open, r.Head)
		fmt.Fprintf(a.stdout, "plans: %d recomputed, %d redacted\n", r.Plans.Recomputed, r.Plans.Redacted)
		for _, s := range said.Proves {
			fmt.Fprintf(a.stdout, "proved: %s\n", shown(s))
		}
		fmt.Fprintf(a.stdout, "not proved: %s\n", shown(strings.Join(said.LeavesOpen, "; ")))
	case r.FirstBad.Reason == audit.Empty:
		a.say(string(bailey.NotFound), "there is no ledger in "+dir, "a home has one after its first call; bailey audit verify DIR looks elsewhere")
	default:
		a.say(string(bailey.Invalid), r.FirstBad.Error(), cureOf(r.FirstBad.Reason))
	}
	if !r.OK {
		return exit(exitDenied)
	}
	return nil
}

// cureOf says what to do about a ledger that does not hold.
func cureOf(r audit.Reason) string {
	switch r {
	case audit.Unsigned:
		return "give the log's key with --key: bailey audit key prints it on the machine that has it; a checkpoint that no such key signed is none"
	case audit.Unwitnessed:
		return "give --against a checkpoint that the witnesses cosigned, and each one's key with --witness"
	case audit.Truncated, audit.Rollback, audit.Forked, audit.Replaced:
		return "keep the ledger and the checkpoint as they are: together they show that one was put in the other's place"
	case audit.Torn:
		return "a crash left this: the next start of the gateway keeps it aside, cuts it off and records that"
	}
	return "keep the file as it is and compare it with a copy; a gateway will not append to it"
}

// verifyReceipt verifies a portable receipt.
func (a *app) verifyReceipt(v verifying, args []string) error {
	t, err := v.trust()
	if err != nil {
		return err
	}
	if len(args) > 0 || len(v.against) > 0 || len(t.Keys) == 0 {
		return &bailey.Error{Kind: bailey.Invalid, Message: "a portable receipt is verified with the log's key and without a ledger",
			Hint: "bailey audit verify --receipt FILE --key KEY"}
	}
	text, err := readBounded(v.receipt, audit.MaxReceipt)
	if err != nil {
		return unread(v.receipt, err)
	}
	found, err := audit.VerifyReceipt(text, t)
	if err != nil {
		return &bailey.Error{Kind: bailey.Denied, Message: "the receipt does not hold: " + err.Error(), Err: err, Hint: "ask for it anew: bailey audit prove RECEIPT"}
	}
	return a.shownReceipt(found)
}

func (a *app) shownReceipt(v audit.Verified) error {
	const open = "that there is no outcome and no later change of the key, a receipt cannot show; what did not pass the gate is not in the log"
	if a.json {
		return a.print(map[string]any{"ok": true, "receipt": v.Intent.Receipt, "checkpoint": v.Signed, "intent": v.Intent.Data, "outcome": v.Outcome.Data,
			"entries": []uint64{v.Intent.Seq, v.Outcome.Seq}, "leavesOpen": []string{open}})
	}
	fmt.Fprintf(a.stdout, "ok: receipt %s is entry %d of %s, which had %d entries\n", v.Intent.Receipt, v.Intent.Seq, shown(v.Origin), v.Size)
	fmt.Fprintf(a.stdout, "intent: %s\n", shown(string(v.Intent.Data)))
	if v.Outcome.Seq != 0 {
		fmt.Fprintf(a.stdout, "outcome: %s\n", shown(string(v.Outcome.Data)))
	}
	for _, c := range v.Cosignatures {
		fmt.Fprintf(a.stdout, "cosigned: by %s\n", shown(c.Witness))
	}
	fmt.Fprintf(a.stdout, "not proved: %s\n", open)
	return nil
}
