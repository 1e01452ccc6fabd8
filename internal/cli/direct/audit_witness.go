package direct

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/audit"
	"bailey/internal/cli"
	"bailey/internal/ledger/notary"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
	"bailey/internal/witness"
)

// witnessFlags holds the flags of audit witness.
type witnessFlags struct {
	name, file, seen  string
	keys              []string
	listen, cert, key string
	show              bool
}

func (a *commands) auditWitnessVerb() *cobra.Command {
	var v witnessFlags
	cmd := &cobra.Command{
		Use:   "witness --name NAME --key-file FILE --seen FILE --key KEY [REQUEST]",
		Short: "Cosign checkpoints of logs on other machines",
		Long: `Run a witness (c2sp.org/tlog-witness): it cosigns a log's checkpoint if it extends the last one
seen of that log, and refuses one that has fewer or other entries. Run it on a machine that the writers of the
log cannot access.

REQUEST is the output of bailey audit checkpoint --since N; the checkpoint is printed with the cosignature.
With --listen it answers POST /add-checkpoint instead, on a loopback address, or with a certificate on any.
The file --seen records each checkpoint before the cosignature is given: if the file is lost, the witness
needs a new key. The key is created when it first cosigns or listens, in a directory of its own of mode 0700
(mkdir -m 700); --show creates nothing. After a log changed its key, give both keys, --key twice. It needs no
gateway and no home.`,
		Example: "  bailey audit witness --name witness.example/w --key-file w/key --seen w/seen --key KEY --listen 127.0.0.1:7070",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.After = "its record is in " + terminal.Shown(v.seen) + ": start it again with that file"
			w, key, err := v.loadWitness()
			switch {
			case err != nil:
				return err
			case v.show:
				return a.shownKey(key)
			case v.listen != "":
				l, err := v.listenFor()
				if err != nil {
					return err
				}
				fmt.Fprintf(a.Stderr, "bailey: witness %s listens on %s\n", key, l.Addr())
				return w.Serve(cmd.Context(), l, v.cert, v.key)
			case len(args) == 1:
				return a.cosignFile(cmd.Context(), w, args[0])
			}
			return bailey.Invalid.New("a request or --listen is missing",
				"name the file with the output of bailey audit checkpoint --since N, or give --listen")
		},
	}
	f := cmd.Flags()
	f.StringVar(&v.name, "name", "", "the witness's `name`, for example a host and path that you own")
	f.StringVar(&v.file, "key-file", "", "its private key, a `file`; created if missing")
	f.StringVar(&v.seen, "seen", "", "the `file` with its record")
	f.StringArrayVar(&v.keys, "key", nil, "the `key` of a log; may be repeated")
	f.StringVar(&v.listen, "listen", "", "the `address` to listen on")
	f.StringVar(&v.cert, "tls-cert", "", "a certificate, PEM `file`")
	f.StringVar(&v.key, "tls-key", "", "its key, PEM `file`")
	f.BoolVar(&v.show, "show", false, "print the witness's public key, for auditors")
	return cmd
}

func (v witnessFlags) loadWitness() (*witness.Witness, audit.Key, error) {
	var none audit.Key
	if v.name == "" || v.file == "" || v.seen == "" && !v.show || (v.cert == "") != (v.key == "") {
		return nil, none, bailey.Invalid.New("--name, --key-file and --seen are required, and --cert needs a key",
			"use: bailey audit witness --name NAME --key-file FILE --seen FILE --key KEY")
	}
	keys, err := parseKeys("--key", v.keys, false)
	if err != nil {
		return nil, none, err
	}
	private, err := v.loadPrivateKey()
	if err != nil {
		return nil, none, err
	}
	key, err := audit.WitnessKey(v.name, notary.PublicOf(private))
	if err != nil {
		return nil, none, bailey.Invalid.New(err.Error(), "give --name another name")
	}
	if v.show {
		return nil, key, nil
	}
	store, err := witness.OpenFile(v.seen)
	return witness.New(store, keys, witness.NewCosigner(key, private, time.Now)), key, err
}

// listenFor listens for requests. Without a certificate it listens only on loopback addresses.
func (v witnessFlags) listenFor() (net.Listener, error) {
	if err := cli.CheckLoopback(v.listen); err != nil && v.cert == "" {
		return nil, err
	}
	l, err := net.Listen("tcp", v.listen)
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "the witness cannot listen on "+terminal.Shown(v.listen),
			"give --listen another address")
	}
	return l, nil
}

// loadPrivateKey returns the witness's key. It is created only if both the key and the record of seen checkpoints are missing,
// and not for --show.
func (v witnessFlags) loadPrivateKey() (crypto.Signer, error) {
	files, name := notary.KeyFiles{Dir: filepath.Dir(v.file), Whose: "the witness"}, filepath.Base(v.file)
	private, err := files.Read(name)
	if v.show {
		return private, err
	}
	_, old := os.Lstat(v.seen)
	if err == nil && errors.Is(old, fs.ErrNotExist) {
		return nil, bailey.Conflict.New("there is a key of the witness, "+terminal.Shown(v.file)+", but no record, "+terminal.Shown(v.seen),
			"check the paths; if the record is lost, use a new name and key; for a key that never signed, write {} to that file")
	}
	if !errors.Is(err, bailey.NotFound) {
		return private, err
	}
	if old == nil {
		return nil, bailey.Conflict.New("there is a record of the witness, "+terminal.Shown(v.seen)+", but no key "+terminal.Shown(v.file),
			"check the paths; if the key is lost, use a new name and another file")
	}
	if private, err = files.Named(name); err != nil {
		return nil, err
	}
	return private, witness.CreateFile(v.seen)
}

func (a *commands) shownKey(key audit.Key) error {
	if a.JSON {
		return a.Print(apitype.KeyReply{OK: true, Key: key})
	}
	_, err := fmt.Fprintln(a.Stdout, key)
	return err
}

func (a *commands) cosignFile(ctx context.Context, w *witness.Witness, name string) error {
	text, err := safefile.ReadNamed(name, audit.MaxRequest)
	if err != nil {
		return apitype.Unread(name, err)
	}
	lines, err := w.Cosign(ctx, text)
	if err != nil {
		return err
	}
	r, err := audit.ParseRequest(text) // Cosign has parsed it before
	if err != nil {
		return err
	}
	both := string(r.Checkpoint) + string(lines)
	if a.JSON {
		return a.Print(map[string]any{"ok": true, "signed": both})
	}
	_, err = fmt.Fprint(a.Stdout, both)
	return err
}

// collectCosignature has a witness cosign the newest checkpoint, and the gateway keep it. The witness reports the last size that
// it saw.
func collectCosignature(ctx context.Context, c *localapi.Client, at string, witnesses []audit.Key,
	r *apitype.CheckpointReply) error {
	target, err := witness.ParseURL(at)
	if err != nil {
		return err
	}
	var since uint64
	for range 3 { // another request for the same log may intervene
		asked, err := apitype.ShowCheckpoint.Ask(ctx, c, apitype.CheckpointRequest{Since: &since})
		if err != nil {
			return err
		}
		lines, size, err := witness.Ask(ctx, target, []byte(asked.Request))
		if err != nil {
			return err
		}
		if lines == nil {
			since = size
			continue
		}
		signed, err := witness.AddLines([]byte(asked.Signed), lines, asked.Key, witnesses)
		if err != nil {
			return err
		}
		kept, err := apitype.CosignCheckpoint.Ask(ctx, c, apitype.CosignedCheckpoint{Signed: string(signed)})
		if err != nil {
			return err
		}
		kept.Request = r.Request
		*r = kept
		return nil
	}
	return bailey.Unavailable.New("the witness at "+terminal.Shown(at)+" reports another size each time",
		"ask again; another client may be asking it for the same log")
}
