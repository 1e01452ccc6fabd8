package direct

import (
	"bytes"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"bailey"
	"bailey/audit"
	"bailey/internal/cli"
	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/strangers"
	"bailey/internal/terminal"
)

// witness cosigns checkpoints of the logs whose keys it knows. The last checkpoint of each log is stored durably in a
// file before the signature is returned. So it never cosigns a smaller checkpoint than before, or two inconsistent
// checkpoints.
//
// Several processes may be one witness if they share the file: each reads it again under a lock. With two files, one
// key could cosign two histories of one log.
type witness struct {
	by    note.Signer
	trust audit.Trust
	file  string // last checkpoints, as JSON by log name

	mu   sync.Mutex // serializes requests; guards seen
	seen map[string]audit.Checkpoint
}

// maxSeen limits the state file, in bytes.
const maxSeen = 1 << 20

// openWitness reads the state file. If the file is missing, the witness has seen nothing. If it cannot be read,
// openWitness returns an error.
func openWitness(file string, t audit.Trust, by note.Signer) (*witness, error) {
	w := &witness{by: by, trust: t, file: file}
	return w, w.readState()
}

// lockState locks the state against other processes of this witness until release, and reads it again. If the file was
// reset, it returns an error.
func (w *witness) lockState(ctx context.Context) (release func(), err error) {
	for end := time.Now().Add(witnessPatience / 2); ; time.Sleep(20 * time.Millisecond) {
		if release, err = localapi.LockFile(w.file + ".lock"); err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) {
			return nil, bailey.Unavailable.Wrap(err, "what the witness saw cannot be held",
				"look at "+terminal.Shown(w.file+".lock")+", and who else is this witness; then ask again")
		}
	}
	was := w.seen
	if err = w.readState(); err == nil {
		for origin, c := range was {
			if now := w.seen[origin]; now.Size < c.Size || now.Size == c.Size && now != c {
				err = bailey.Conflict.New("the file of what the witness saw was put back or taken away: "+
					terminal.Shown(w.file),
					"restore it")
			}
		}
	}
	if err != nil {
		w.seen = was
		release()
		return nil, err
	}
	return release, nil
}

func (w *witness) readState() error {
	w.seen = map[string]audit.Checkpoint{}
	text, err := safefile.ReadNamed(w.file, maxSeen)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &w.seen)
	}
	if err == nil && w.seen == nil {
		err = errors.New("it is null")
	}
	for origin, c := range w.seen {
		if err == nil && (c.Origin != origin || c.Size == 0) {
			err = fmt.Errorf("of %.80q it holds no checkpoint", origin)
		}
	}
	if err != nil {
		return bailey.Conflict.Wrap(err, "what the witness saw last cannot be read: "+terminal.Shown(w.file),
			"restore the file from a copy; a witness that forgot is to be given another key and name")
	}
	return nil
}

// staleError is the error for a request that does not start at the last size that the witness saw.
type staleError struct{ size uint64 }

func (s staleError) Error() string {
	return fmt.Sprintf("the witness saw %d entries last: the request has to begin there", s.size)
}

// errUnknown is the error for a checkpoint of a log whose key the witness does not have.
var errUnknown = &bailey.Error{Kind: bailey.NotFound, Message: "the witness was given no key of this log",
	Hint: "start it with --key KEY, as bailey audit key prints it"}

// cosignRequest verifies and cosigns a request. It returns the signature lines of the witness.
func (w *witness) cosignRequest(ctx context.Context, text []byte) ([]byte, error) {
	r, err := audit.ParseRequest(text)
	if err != nil {
		return nil, bailey.Invalid.New(err.Error(), "bailey audit checkpoint --since N prints one")
	}
	said, err := audit.ReadCheckpoint(r.Checkpoint)
	if err != nil {
		return nil, bailey.Invalid.New(err.Error(), "bailey audit checkpoint --since N prints one")
	}
	if !w.hasKeyFor(said.Origin) {
		return nil, errUnknown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	release, err := w.lockState(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	last := w.seen[said.Origin]
	if r.Old > said.Size {
		return nil, bailey.Invalid.New("the request begins behind its own checkpoint",
			"give --since what the witness saw last")
	}
	// before the size, which strangers must not learn
	if _, err := w.trust.Open(r.Checkpoint); err != nil {
		return nil, err
	}
	if r.Old != last.Size {
		return nil, staleError{last.Size}
	}
	cosigned, err := audit.Cosign(r.Checkpoint, w.trust, last, r.Proof, w.by)
	if err != nil {
		return nil, err
	}
	if err := w.storeCheckpoint(said); err != nil {
		return nil, err
	}
	return ownLines(cosigned, w.by.Name()), nil
}

func (w *witness) hasKeyFor(origin string) bool {
	return slices.ContainsFunc(w.trust.Keys, func(k audit.Key) bool { return k.Name() == origin })
}

// storeCheckpoint stores the last checkpoint of a log durably.
func (w *witness) storeCheckpoint(c audit.Checkpoint) error {
	if w.seen[c.Origin] == c {
		return nil
	}
	next := maps.Clone(w.seen)
	next[c.Origin] = c
	if err := w.writeState(next); err != nil {
		return err
	}
	w.seen = next
	return nil
}

func (w *witness) writeState(seen map[string]audit.Checkpoint) error {
	text, err := json.MarshalIndent(seen, "", " ")
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(w.file))
	if err != nil {
		return err
	}
	defer root.Close()
	return safefile.Replace(root, filepath.Base(w.file), append(text, '\n'), 0o600, func() error { return nil })
}

// ownLines returns the signature lines of a note that carry the given name.
func ownLines(signed []byte, name string) []byte {
	var lines []byte
	for line := range bytes.SplitAfterSeq(signed, []byte("\n")) {
		if bytes.HasPrefix(line, []byte("— "+name+" ")) {
			lines = append(lines, line...)
		}
	}
	return lines
}

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
		Long: `Be a witness (c2sp.org/tlog-witness): cosign a log's checkpoint when it goes on from what was seen of that log last, and never
one that has fewer entries or others. Run it where who can write the log cannot.

REQUEST is what bailey audit checkpoint --since N printed; the checkpoint is printed with the cosignature. With --listen it
answers POST /add-checkpoint instead, on a loopback address, or with a certificate anywhere. What was seen is in the file
--seen before anybody gets a signature: a witness that lost it needs another key. The key is made when it first cosigns
or listens, in a directory of its own of mode 0700 (mkdir -m 700); --show makes nothing. A log that changed its key wants
the new one given beside the old, --key twice. It needs no gateway and no home.`,
		Example: "  bailey audit witness --name witness.example/w --key-file w/key --seen w/seen --key KEY --listen 127.0.0.1:7070",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.After = "what it saw last is in " + terminal.Shown(v.seen) + ": start it again with that"
			w, key, err := v.loadWitness()
			switch {
			case err != nil:
				return err
			case v.show:
				return a.PrintLine(apitype.KeyReply{OK: true, Key: key}, "%v\n", key)
			case v.listen != "":
				return serveWitness(cmd.Context(), w, v.listen, v.cert, v.key, func(at net.Addr) {
					fmt.Fprintf(a.Stderr, "bailey: witness %s listens on %s\n", key, at)
				})
			case len(args) == 1:
				return a.cosignFile(cmd.Context(), w, args[0])
			}
			return bailey.Invalid.New("a witness is given a request, or listens",
				"name the file that bailey audit checkpoint --since N printed, or give --listen")
		},
	}
	f := cmd.Flags()
	f.StringVar(&v.name, "name", "", "the witness's `name`, such as a host and path that are yours")
	f.StringVar(&v.file, "key-file", "", "its private key, a `file`; made when missing")
	f.StringVar(&v.seen, "seen", "", "the `file` of what it saw last")
	f.StringArrayVar(&v.keys, "key", nil, "the `key` of a log; may be repeated")
	f.StringVar(&v.listen, "listen", "", "the `address` to listen on")
	f.StringVar(&v.cert, "tls-cert", "", "a certificate, PEM `file`")
	f.StringVar(&v.key, "tls-key", "", "its key, PEM `file`")
	f.BoolVar(&v.show, "show", false, "print the witness's public key, for auditors")
	return cmd
}

func (v witnessFlags) loadWitness() (*witness, audit.Key, error) {
	var none audit.Key
	if v.name == "" || v.file == "" || v.seen == "" && !v.show || (v.cert == "") != (v.key == "") {
		return nil, none, bailey.Invalid.New("a witness has a name, a key's file and a file of what it saw; a certificate has a key",
			"bailey audit witness --name NAME --key-file FILE --seen FILE --key KEY")
	}
	keys, err := parseKeys("--key", v.keys, false)
	if err != nil {
		return nil, none, err
	}
	private, err := v.loadPrivateKey()
	if err != nil {
		return nil, none, err
	}
	by, err := audit.NewCosigner(v.name, private, time.Now)
	if err != nil {
		return nil, none, bailey.Invalid.New(err.Error(), "give --name another name")
	}
	key, err := audit.WitnessKey(v.name, ledger.PublicOf(private))
	if err != nil || v.show {
		return nil, key, err
	}
	w, err := openWitness(v.seen, audit.Trust{Keys: keys}, by)
	return w, key, err
}

// loadPrivateKey returns the witness's key. It is created only if both the key and the record of seen checkpoints are missing,
// and not for --show.
func (v witnessFlags) loadPrivateKey() (crypto.Signer, error) {
	files, name := ledger.KeyFiles{Dir: filepath.Dir(v.file), Whose: "the witness"}, filepath.Base(v.file)
	private, err := files.Read(name)
	if v.show {
		return private, err
	}
	_, old := os.Lstat(v.seen)
	if err == nil && errors.Is(old, fs.ErrNotExist) {
		return nil, bailey.Conflict.New("there is the witness's key, "+terminal.Shown(v.file)+", and no record of what it saw, "+terminal.Shown(v.seen),
			"look at the paths; a witness that forgot begins anew, with another name and key; a key that never signed begins with {} in that file")
	}
	if !errors.Is(err, bailey.NotFound) {
		return private, err
	}
	if old == nil {
		return nil, bailey.Conflict.New("there is a record of what the witness saw, "+terminal.Shown(v.seen)+", and no key "+terminal.Shown(v.file),
			"look at the paths; a witness that lost its key begins anew, with another name and another file")
	}
	if private, err = files.Named(name); err != nil {
		return nil, err
	}
	w := &witness{file: v.seen} // an empty record, so that a missing one means loss
	return private, w.writeState(map[string]audit.Checkpoint{})
}

func (a *commands) cosignFile(ctx context.Context, w *witness, name string) error {
	text, err := safefile.ReadNamed(name, audit.MaxRequest)
	if err != nil {
		return apitype.Unread(name, err)
	}
	lines, err := w.cosignRequest(ctx, text)
	if err != nil {
		return refusalError(err)
	}
	r, err := audit.ParseRequest(text) // add has parsed it before
	if err != nil {
		return err
	}
	both := string(r.Checkpoint) + string(lines)
	return a.PrintLine(map[string]any{"ok": true, "signed": both}, "%s", both)
}

// refusalError gives a refusal its kind and its hint.
func refusalError(err error) error {
	if bailey.HintOf(err) != "" {
		return err
	}
	hint := "keep what was refused, and look into the log"
	var s staleError
	var bad *audit.Bad
	switch {
	case errors.As(err, &s):
		hint = fmt.Sprintf("bailey audit checkpoint --since %d prints one that does", s.size)
	case errors.As(err, &bad) && bad.Reason == audit.Unsigned:
		hint = newKey
	}
	return bailey.Conflict.Wrap(err, "not cosigned", hint)
}

// The HTTP form of c2sp.org/tlog-witness: POST /add-checkpoint.

const (
	addPath  = "/add-checkpoint"
	sizeType = "text/x.tlog.size"
)

// witnessPatience limits a request to a witness, on both sides.
const witnessPatience = 20 * time.Second

// newHandler returns the HTTP handler of the witness.
func (w *witness) newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+addPath, func(out http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(out, r.Body, audit.MaxRequest))
		if err != nil {
			http.Error(out, "the request is not whole, or too long", http.StatusRequestEntityTooLarge)
			return
		}
		lines, err := w.cosignRequest(r.Context(), text)
		if err != nil {
			writeRefusal(out, err)
			return
		}
		out.Header().Set("Content-Type", "text/plain; charset=utf-8")
		out.Write(lines)
	})
	return mux
}

// newKey is the hint if the witness does not know the signing key.
const newKey = "a log that changed its key announces the new one in its ledger, and bailey audit key prints it: look at what became of the log, and start the witness with that --key beside the one before"

// writeRefusal writes the error status of the specification: for example 409 with the last size, or 422 if the proof is
// invalid.
func writeRefusal(out http.ResponseWriter, err error) {
	var s staleError
	var bad *audit.Bad
	code := http.StatusInternalServerError
	switch {
	case errors.As(err, &s):
		out.Header().Set("Content-Type", sizeType)
		out.WriteHeader(http.StatusConflict)
		fmt.Fprintf(out, "%d\n", s.size)
		return
	case errors.As(err, &bad) && bad.Reason == audit.Unsigned:
		code = http.StatusForbidden
	case errors.As(err, &bad):
		code = http.StatusUnprocessableEntity
	case errors.Is(err, bailey.NotFound):
		code = http.StatusNotFound
	case errors.Is(err, bailey.Invalid):
		code = http.StatusBadRequest
	}
	http.Error(out, err.Error(), code)
}

// serveWitness serves until ctx ends. Without a certificate it listens only on loopback addresses.
func serveWitness(ctx context.Context, w *witness, addr, cert, key string, ready func(net.Addr)) error {
	if err := cli.CheckLoopback(addr); err != nil && cert == "" {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return bailey.Unavailable.Wrap(err, "the witness cannot listen on "+terminal.Shown(addr),
			"give --listen another address")
	}
	// a witness requires no token, so all connections remain unauthenticated
	l = strangers.New(strangers.Usual).Listener(l, nil)
	server := &http.Server{Handler: w.newHandler(), ReadTimeout: witnessPatience, WriteTimeout: witnessPatience,
		IdleTimeout: witnessPatience, MaxHeaderBytes: 16 << 10}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	ready(l.Addr())
	if cert != "" {
		err = server.ServeTLS(l, cert, key)
	} else {
		err = server.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return context.Cause(ctx)
	}
	return err
}

// collectCosignature has a witness cosign the newest checkpoint, and the gateway keep it. The witness reports the last size that
// it saw.
func collectCosignature(ctx context.Context, c *localapi.Client, at string, witnesses []audit.Key,
	r *apitype.CheckpointReply) error {
	target, err := witnessURL(at)
	if err != nil {
		return err
	}
	var since uint64
	for range 3 { // another request for the same log may intervene
		asked, err := apitype.ShowCheckpoint.Ask(ctx, c, apitype.CheckpointRequest{Since: &since})
		if err != nil {
			return err
		}
		lines, size, err := askWitness(ctx, target, []byte(asked.Request))
		if err != nil {
			return err
		}
		if lines == nil {
			since = size
			continue
		}
		signed, err := addLines([]byte(asked.Signed), lines, asked.Key, witnesses)
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
	return bailey.Unavailable.New("the witness at "+terminal.Shown(at)+" says each time that it saw another size",
		"ask again; another may ask it for the same log")
}

// witnessURL returns the URL for checkpoints. It must be https, or http on this machine.
func witnessURL(at string) (string, error) {
	u, err := url.Parse(at)
	if err == nil && u.Host != "" && u.User == nil &&
		(u.Scheme == "https" || u.Scheme == "http" && cli.CheckLoopback(net.JoinHostPort(u.Hostname(), "1")) == nil) {
		return strings.TrimSuffix(u.String(), "/") + addPath, nil
	}
	return "", bailey.Invalid.Wrap(err, terminal.Shown(at)+" is no URL of a witness",
		"https://…, or http:// of a loopback address")
}

// askWitness returns the signature lines of the witness, or nil and the size that it saw last.
func askWitness(ctx context.Context, target string, request []byte) (lines []byte, size uint64, err error) {
	unreachable := func(what string, err error) error {
		return bailey.Unavailable.Wrap(err, "the witness at "+terminal.Shown(target)+" "+terminal.Shown(what),
			"the checkpoint is signed and kept without it; ask again later")
	}
	ctx, cancel := context.WithTimeout(ctx, witnessPatience)
	defer cancel()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(request))
	if err != nil {
		return nil, 0, err
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it sends elsewhere") }}
	answer, err := client.Do(post)
	if err != nil {
		return nil, 0, unreachable("does not answer", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, audit.MaxNote))
	if err != nil {
		return nil, 0, unreachable("broke off", err)
	}
	switch answer.StatusCode {
	case http.StatusOK:
		return body, 0, nil
	case http.StatusForbidden:
		return nil, 0, bailey.Unavailable.New(terminal.Shown(fmt.Sprintf("the witness at %s trusts no key that signed this checkpoint: %.600s", target, bytes.TrimSpace(body))),
			newKey)
	case http.StatusConflict:
		size, err := strconv.ParseUint(strings.TrimSuffix(string(body), "\n"), 10, 63)
		if err != nil {
			return nil, 0, unreachable("refuses without saying what it saw", err)
		}
		return nil, size, nil
	}
	return nil, 0, unreachable(fmt.Sprintf("refuses: %s: %.300s", answer.Status, bytes.TrimSpace(body)), nil)
}

// mostLines is the maximum number of signature lines in an answer. A witness may sign with several of its keys.
const mostLines = 16

// addLines adds the cosignatures of trusted witnesses in lines to a checkpoint. It returns an error if there are none.
func addLines(signed, lines []byte, key audit.Key, witnesses []audit.Key) ([]byte, error) {
	t := audit.Trust{Keys: []audit.Key{key}, Witnesses: witnesses}
	text, _, _ := bytes.Cut(signed, []byte("\n\n"))
	own := ownLines(signed, key.Name())
	err := errors.New("none of the keys given made this cosignature")
	added := signed
	for n, line := range slices.Collect(bytes.SplitAfterSeq(bytes.TrimSuffix(lines, []byte("\n")), []byte("\n"))) {
		if n == mostLines || !bytes.HasPrefix(line, []byte("— ")) || !bytes.HasSuffix(lines, []byte("\n")) {
			err = errors.New("it is not some lines of signatures")
			break
		}
		one := slices.Concat(text, []byte("\n\n"), own, bytes.TrimSuffix(line, []byte("\n")), []byte("\n"))
		s, oerr := t.Open(one)
		if oerr == nil && len(s.Cosignatures) == 1 {
			added, err = audit.Join(added, one)
			if err != nil {
				break
			}
		}
	}
	if err != nil {
		return nil, bailey.Denied.Wrap(err, "what the witness answered is no cosignature of one that is trusted",
			"compare --witness-key with what bailey audit witness --show prints there; the checkpoint is kept without it")
	}
	return added, nil
}
