package direct

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/audit"
	"bailey/internal/cli"
	"bailey/internal/ledger"
	"bailey/internal/ledger/notary"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

func (a *commands) auditVerb() *cobra.Command {
	return cli.GroupVerb("audit", "Verify the ledger, sign it, and have it witnessed", "",
		a.auditVerifyVerb(), a.auditCheckpointVerb(), a.auditKeyVerb(), a.auditProveVerb(), a.auditWitnessVerb())
}

// verifyFlags holds the flags of audit verify.
type verifyFlags struct {
	against, keys, witnesses []string
	quorum                   int
	receipt                  string
	verbose                  bool
}

func (a *commands) auditVerifyVerb() *cobra.Command {
	var v verifyFlags
	cmd := &cobra.Command{
		Use: "verify [DIR|FILE]", Short: "Verify the ledger: reads files only, starts nothing, repairs nothing",
		Long: `Verify the ledger's chain, that each intent has at most one outcome, and that the jail plan that an
outcome names is present and matches its digest. A plan is redacted if its text would contain a
secret: its digest cannot be recomputed.

It reads $BAILEY_HOME/ledger and the checkpoint beside it, or the directory DIR: a copy, regardless of who may
write it. If a gateway would reject its own ledger for mode, owner or links, a note says so; the result does
not change.

--against compares the ledger with a checkpoint that was kept elsewhere; - is stdin. --key names the log's
key, as you got it from a source other than the ledger: verification fails if the ledger has another name or
announces other keys. Without --key, checkpoints are verified with the keys that the ledger itself announces
(for the home, also those beside it), and "not proved" says that no other source confirmed them. --witness and
--quorum set whose cosignatures each checkpoint of --against needs. --receipt verifies a portable receipt and
reads no ledger. FILE is an evidence bundle, as a control plane exports a session: it is verified with --key and
with the --witness that sealed it, or else with the keys that it names itself, which no other source confirms.

It takes no lock and may run while a gateway writes: if the last line is incomplete, it is read again, and
counts as torn only if it is unchanged a fifth of a second later.

The result is one line; --verbose lists what it proves and what it does not.

Exit code 1, with the entry and the reason, if verification fails; 2 if there is nothing to verify. Without a
witness the log proves order, not honesty: anyone who can write the file and has the log's key can write
another one that verifies. Calls that did not pass the gate are not in it.`,
		Example: "  bailey audit verify --against morning --key bailey/castle/…+a46ec510+AYqI…",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("receipt") {
				return a.verifyReceipt(v, args)
			}
			return a.verifyLedger(cmd.Context(), v, args)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&v.against, "against", nil,
		"a signed checkpoint that was kept elsewhere, a `file`; may be repeated")
	f.StringArrayVar(&v.keys, "key", nil, "a `key` of the log, as bailey audit key prints it; may be repeated")
	f.StringArrayVar(&v.witnesses, "witness", nil, "the `key` of a witness; may be repeated")
	f.IntVar(&v.quorum, "quorum", allWitnesses,
		"how many of the witnesses must have cosigned (default all)")
	f.Lookup("quorum").DefValue = "all"
	f.BoolVar(&v.verbose, "verbose", false, "list what the result proves, and what it does not")
	f.StringVar(&v.receipt, "receipt", "", "verify a portable receipt, a `file`")
	return cmd
}

// allWitnesses is the quorum if the flag is not given.
const allWitnesses = -1 << 31

// buildTrust returns the trust that the flags define.
func (v verifyFlags) buildTrust() (t audit.Trust, err error) {
	if t.Keys, err = parseKeys("--key", v.keys, false); err == nil {
		t.Witnesses, err = parseKeys("--witness", v.witnesses, true)
	}
	distinct := map[string]bool{} // one key under two names counts once
	for _, w := range t.Witnesses {
		distinct[string(w.Public())] = true
	}
	if t.Quorum = v.quorum; v.quorum == allWitnesses {
		t.Quorum = len(distinct)
	}
	switch {
	case err != nil, v.quorum == allWitnesses:
	case v.quorum < 0:
		err = bailey.Invalid.Errorf("give the number of witnesses that must have cosigned",
			"--quorum %d is negative", v.quorum)
	case v.quorum > len(t.Witnesses):
		err = bailey.Invalid.Errorf("name each witness with --witness KEY",
			"--quorum %d is more than the %d witnesses named", v.quorum, len(t.Witnesses))
	}
	return t, err
}

func parseKeys(flag string, texts []string, witness bool) ([]audit.Key, error) {
	var keys []audit.Key
	for _, text := range texts {
		k, err := audit.ParseKey(strings.TrimSpace(text))
		if err == nil && k.Witness() != witness {
			err = errors.New("it is the wrong kind of key: a log signs, a witness cosigns")
		}
		if err != nil {
			return nil, bailey.Invalid.Wrap(err, flag+" "+terminal.Shown(text)+" is not such a key",
				"use the output of bailey audit key, or for a witness of bailey audit witness --show")
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func (a *commands) verifyLedger(ctx context.Context, v verifyFlags, args []string) error {
	c, err := a.buildCheck(v)
	if err != nil {
		return err
	}
	if len(args) == 1 {
		if st, err := os.Stat(args[0]); err == nil && st.Mode().IsRegular() {
			return a.verifyEvidence(v, args[0])
		}
		report, notes, err := ledger.VerifyCopy(ctx, args[0], c)
		if err != nil {
			return err
		}
		return a.printVerdict(args[0], newVerifyResult(report, c.Own, notes), v.verbose)
	}
	home, err := localapi.FindHome()
	if err != nil {
		return err
	}
	if c.Newest, err = apitype.KeptNote(home.Checkpoint()); err != nil {
		return err
	}
	c.Shown = homeKeys(home, c.Newest)
	c.Called[0] = home.Checkpoint()
	if _, err := os.Lstat(home.Ledger()); errors.Is(err, fs.ErrNotExist) && c.Newest == nil {
		c = audit.Check{} // no sign of an earlier ledger
	}
	report, err := ledger.VerifyAgainst(ctx, home.Ledger(), c)
	if err != nil {
		return err
	}
	return a.printVerdict(home.Ledger(), newVerifyResult(report, c.Own, nil), v.verbose)
}

// buildCheck returns the checkpoints and keys from the flags.
func (a *commands) buildCheck(v verifyFlags) (c audit.Check, err error) {
	c.Own, c.Called = len(v.keys) == 0, []string{""}
	if c.Trust, err = v.buildTrust(); err != nil {
		return c, err
	}
	for _, name := range v.against {
		signed, err := a.readInput(name, audit.MaxNote)
		if err != nil {
			return c, apitype.Unread(name, err)
		}
		if name == "-" {
			name = "stdin"
		}
		c.Seen, c.Called = append(c.Seen, signed), append(c.Called, name)
	}
	return c, nil
}

// homeKeys returns the public halves of the home's keys. With them, a rollback to a point before the first key in the
// ledger is still detected.
func homeKeys(home localapi.Home, signed []byte) []audit.Key {
	c, err := audit.ReadCheckpoint(signed)
	if err != nil {
		return nil
	}
	var keys []audit.Key
	for _, public := range (notary.KeyFiles{Dir: home.Keys()}).Publics() {
		if k, err := audit.LogKey(c.Origin, public); err == nil {
			keys = append(keys, k)
		}
	}
	return keys
}

// readInput reads the named file, or standard input if the name is -.
func (a *commands) readInput(name string, most int64) ([]byte, error) {
	switch name {
	case os.DevNull:
		return []byte{}, nil
	case "-":
		b, err := io.ReadAll(io.LimitReader(a.Stdin, most+1))
		if err == nil && int64(len(b)) > most {
			err = fmt.Errorf("it is over the %d bytes allowed", most)
		}
		return b, err
	}
	return safefile.ReadNamed(name, most)
}

// verifyReceipt verifies a portable receipt.
func (a *commands) verifyReceipt(v verifyFlags, args []string) error {
	t, err := v.buildTrust()
	const use = "run bailey audit verify --receipt FILE --key KEY"
	switch {
	case err != nil:
		return err
	case len(args) > 0:
		return bailey.Invalid.New("a portable receipt is verified without a ledger: leave out "+terminal.Shown(args[0]),
			use)
	case len(v.against) > 0:
		return bailey.Invalid.New("a portable receipt contains its checkpoint: leave out --against", use)
	case len(t.Keys) == 0:
		return bailey.Invalid.New("--key is missing: a portable receipt is verified with the log's key", use)
	}
	text, err := a.readInput(v.receipt, audit.MaxReceipt)
	if err != nil {
		return apitype.Unread(v.receipt, err)
	}
	found, err := audit.VerifyReceipt(text, t)
	if err != nil {
		return bailey.Conflict.Wrap(err, "the receipt is invalid",
			"check the key first; then request the receipt again: bailey audit prove RECEIPT")
	}
	return a.shownReceipt(found)
}

func (a *commands) shownReceipt(v audit.Verified) error {
	open := []string{
		"a receipt cannot show that a call has no outcome, or that the log's key was not changed later",
		"a body in blobs/ was not checked: it may be missing or changed",
		"calls that did not pass the gate are not in the log",
	}
	if len(v.Cosignatures) == 0 {
		open = append(open, "no named witness cosigned it: it proves order, not honesty")
	}
	said := map[string]any{"ok": true, "receipt": v.Intent.Receipt, "checkpoint": v.Signed,
		"intent": v.Intent.Data, "outcome": v.Outcome.Data,
		"entries": []uint64{v.Intent.Seq, v.Outcome.Seq}, "leavesOpen": open}
	return cli.PrintAnswer(a.App, said, func(w io.Writer, _ map[string]any) {
		fmt.Fprintf(w, "ok: receipt %s is entry %d of %s, which had %d entries\n", v.Intent.Receipt, v.Intent.Seq,
			terminal.Shown(v.Origin), v.Size)
		fmt.Fprintf(w, "intent: %s\n", terminal.Shown(string(v.Intent.Data)))
		if v.Outcome.Seq != 0 {
			fmt.Fprintf(w, "outcome: %s\n", terminal.Shown(string(v.Outcome.Data)))
		}
		for _, c := range v.Cosignatures {
			fmt.Fprintf(w, "cosigned: by %s\n", terminal.Shown(c.Witness))
		}
		for _, s := range open {
			fmt.Fprintf(w, "not proved: %s\n", s)
		}
	})
}

func (a *commands) auditCheckpointVerb() *cobra.Command {
	var urls, keys []string
	var since int64
	cmd := &cobra.Command{
		Use: "checkpoint", Short: "Sign a checkpoint of the ledger and print it",
		Long: `Sign the current state of the ledger and print the checkpoint: a note of about two hundred bytes
(c2sp.org/tlog-checkpoint). Keep it where the gateway's machine cannot write. Later, bailey audit verify
--against FILE shows whether the ledger was cut, restored or rewritten. The checkpoint becomes the newest of
the home, and the log never signs a smaller one.

--witness asks a witness to cosign it, and --witness-key names the witness's key: an unverified cosignature
is not kept. --since N prints the request for a witness that saw N entries, for bailey audit witness.`,
		Example: "  bailey audit checkpoint > checkpoint-$(date -I)",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			witnesses, err := parseKeys("--witness-key", keys, true)
			if err != nil {
				return err
			}
			if since < 0 && cmd.Flags().Changed("since") {
				return bailey.Invalid.Errorf("give the number of entries that the witness saw; 0 if it saw none",
					"--since %d is negative", since)
			}
			if len(urls) > 0 && len(witnesses) == 0 {
				return bailey.Invalid.New("the witness's key is missing",
					"add --witness-key KEY, as bailey audit witness --show prints it")
			}
			return a.signCheckpoint(cmd.Context(), urls, witnesses, since)
		},
	}
	cmd.Flags().StringArrayVar(&urls, "witness", nil, "the `URL` of a witness; may be repeated")
	cmd.Flags().StringArrayVar(&keys, "witness-key", nil, "the `key` of a witness; may be repeated")
	cmd.Flags().Int64Var(&since, "since", -1,
		"print the request to a witness that saw `N` entries, 0 for one that saw none")
	return cmd
}

func (a *commands) signCheckpoint(ctx context.Context, urls []string, witnesses []audit.Key, since int64) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	var asked apitype.CheckpointRequest
	if since >= 0 {
		size := uint64(since)
		asked.Since = &size
	}
	r, err := apitype.SignCheckpoint.Ask(ctx, c, asked)
	if err != nil {
		return err
	}
	for _, url := range urls {
		if err := collectCosignature(ctx, c, url, witnesses, &r); err != nil {
			if !a.JSON { // already signed and stored, so redirected output must have it
				fmt.Fprint(a.Stdout, r.Signed)
			}
			return err
		}
	}
	text := r.Signed
	if since >= 0 {
		text = r.Request
	}
	return a.PrintLine(r, "%s", text)
}

func (a *commands) auditKeyVerb() *cobra.Command {
	var rotate bool
	cmd := &cobra.Command{
		Use: "key", Short: "Show the public key of the log, for auditors",
		Long: `Show the public key with which the log signs its checkpoints. It is created at first use and
announced in the ledger. Give it to auditors by a way other than the ledger.

With --rotate, the log signs with a new key from now on. The ledger records the change, signed by the previous
key, whose private half is removed; trust in the first key extends to its successors. If settings.yaml sets
checkpointKey, a key of the home is replaced by one of the broker's, which cannot be rotated. This is an
operator command: it needs a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var k apitype.KeyReply
			var err error
			if rotate {
				k, err = cli.Operate(cmd.Context(), a.App, "audit key --rotate", apitype.RotateCheckpointKey, localapi.None{},
					"Sign with a new key from now on?")
			} else {
				k, err = cli.Ask(cmd.Context(), a.App, apitype.ShowCheckpointKey, localapi.None{})
			}
			if err != nil {
				return err
			}
			return a.PrintLine(k, "%v\n", k.Key)
		},
	}
	cmd.Flags().BoolVar(&rotate, "rotate", false, "sign with a new key from now on")
	return a.YesFlag(cmd, "do not ask for confirmation")
}

func (a *commands) auditProveVerb() *cobra.Command {
	return cli.QueryVerb(a.App, &cobra.Command{
		Use: "prove RECEIPT", Short: "Print a receipt that can be verified without the ledger",
		Long: `Print a portable receipt: the receipt's entries, each with the proof that it is in the ledger, and
a signed checkpoint. With the log's key alone anyone can verify it: bailey audit verify --receipt FILE --key
KEY.

It uses the newest stored checkpoint that covers the receipt, preferring one with cosignatures. If there is
none, it signs one, as bailey audit checkpoint does: the newest one with cosignatures is kept beside it.`,
		Example: "  bailey audit prove r-… > receipt",
		Args:    cli.OneArg("a receipt, as in bailey receipts list"),
	}, apitype.ProveReceipt, cli.OneID, func(w io.Writer, r apitype.ProofReply) { fmt.Fprint(w, r.Receipt) })
}

// verifyResult is the JSON form of a report. If it is not OK, it is an error as well.
type verifyResult struct {
	audit.Report
	Proves     []string    `json:"proves"`
	LeavesOpen []string    `json:"leavesOpen"`
	Notes      []string    `json:"notes,omitempty"` // for a copy: why a gateway would reject it
	Error      bailey.Kind `json:"error,omitempty"`
	Why        string      `json:"reason,omitempty"`
	Hint       string      `json:"hint,omitempty"`
	verbose    bool
}

// newVerifyResult says what a report proves and what it leaves open. A key that only the ledger itself announces does not prove
// whose key it is.
func newVerifyResult(r audit.Report, own bool, notes []string) verifyResult {
	out := verifyResult{Report: r, Proves: []string{}, LeavesOpen: r.LeavesOpen(), Notes: notes}
	if own && len(r.Held) > 0 {
		out.LeavesOpen = append([]string{"no other source confirmed the log's key: it comes from the ledger or from beside it, so the writer of these files chose it; give --key"}, out.LeavesOpen...)
	}
	if r.OK {
		out.Proves = r.Proves()
		return out
	}
	out.Error, out.Why, out.Hint = bailey.Conflict, r.FirstBad.Error(), cureOf(r.FirstBad)
	return out
}

func (a *commands) printVerdict(dir string, r verifyResult, verbose bool) error {
	r.verbose = verbose
	if !r.OK && r.FirstBad.Reason == audit.Empty && r.Segments == 0 {
		r.Error, r.Why, r.Hint = bailey.NotFound, "there is no ledger in "+
			dir, "make a call first, which creates one; or verify another directory: bailey audit verify DIR"
	}
	err := cli.PrintAnswer(a.App, r, a.printResult)
	return cli.ExitUnless(r.OK, apitype.ExitDenied, err)
}

// printResult prints a result and what it proves.
func (a *commands) printResult(w io.Writer, r verifyResult) {
	if !r.OK {
		a.Say(string(r.Error), r.Why, r.Hint)
		if r.Also != nil {
			fmt.Fprintf(a.Stderr, "  also: %s\n", terminal.Shown(r.Also.Error()))
		}
		for _, s := range r.Notes {
			fmt.Fprintf(a.Stderr, "  note: %s\n", terminal.Shown(s))
		}
		return
	}
	fmt.Fprintf(w, "ok: %d entries, %d calls (%d open), head %s\n", r.Entries, r.Intents, r.Open, r.Head)
	if !r.verbose {
		for _, s := range r.Notes { // for example, that other users can write the ledger
			fmt.Fprintf(a.Stderr, "note: %s\n", terminal.Shown(s))
		}
		return
	}
	fmt.Fprintf(w, "plans: %d recomputed, %d redacted\n", r.Plans.Recomputed, r.Plans.Redacted)
	for _, list := range []struct {
		word string
		said []string
	}{{"note", r.Notes}, {"proved", r.Proves}, {"not proved", r.LeavesOpen}} {
		for _, s := range list.said {
			fmt.Fprintf(w, "%s: %s\n", list.word, terminal.Shown(s))
		}
	}
}

// cureOf returns the hint for a ledger that does not verify.
func cureOf(bad *audit.Bad) string {
	switch bad.Reason {
	case audit.Unsigned:
		return "check that file, and give --key the key that signed it, from a source other than the ledger"
	case audit.Unwitnessed:
		return "give --against a checkpoint that the witnesses cosigned, and each witness's key with --witness"
	case audit.Truncated, audit.Rollback:
		return "keep both ledger and checkpoint unchanged: more entries were signed than are present; find out who can write the ledger"
	case audit.Replaced:
		return "check whether ledger, key and checkpoint belong together; if they do, keep them unchanged: the ledger was replaced"
	case audit.Forked:
		return "keep both ledger and checkpoint unchanged: they are two histories under one name, and the log's key signed one of them"
	case audit.Torn:
		return "if a crash caused it, the next start of the gateway saves these bytes, cuts them off and records that; if this is a copy, get another"
	case audit.Empty:
		return "the ledger was emptied: keep it unchanged and compare it with a copy"
	}
	if bad.Reason == audit.Rekeyed && bad.Segment == 0 {
		return "check whether it is the right key; if it is, keep the ledger unchanged: this key signs for another ledger"
	}
	return "keep the file unchanged and compare it with another byte-for-byte copy"
}
