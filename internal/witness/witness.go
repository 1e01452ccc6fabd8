// Package witness is a witness of other logs (c2sp.org/tlog-witness): it cosigns a log's checkpoint if the checkpoint
// extends the one that it cosigned last. A [Store] keeps the latter, [Witness.Handler] answers over HTTP, and [Ask] is
// the other side.
package witness

import (
	"bytes"
	"context"
	"crypto"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"bailey"
	"bailey/audit"
	"bailey/internal/strangers"
)

// Store keeps the last checkpoint of each log.
type Store interface {
	// Replace calls next with the last checkpoint of a log, or with the zero Checkpoint, and stores durably what next
	// returns. If next returns an error, Replace stores nothing and returns that error. Until Replace returns, no
	// other process can replace a checkpoint in the same store.
	Replace(ctx context.Context, origin string, next func(last audit.Checkpoint) (audit.Checkpoint, error)) error
}

// Witness cosigns checkpoints of the logs whose keys it has. The checkpoint is in the store before the signature is
// returned, so it never cosigns fewer entries than before, or other ones.
type Witness struct {
	by    note.Signer
	trust audit.Trust
	store Store
}

// New returns the witness that signs with by, and knows the logs of these keys.
func New(store Store, keys []audit.Key, by note.Signer) *Witness {
	return &Witness{by: by, trust: audit.Trust{Keys: keys}, store: store}
}

// StaleError is the error for a request that does not begin at the size that the witness saw last.
type StaleError struct{ Size uint64 }

func (s StaleError) Error() string {
	return fmt.Sprintf("the witness last saw %d entries: the request must begin there", s.Size)
}

// errUnknown is the error for a checkpoint of a log whose key the witness does not have.
var errUnknown = &bailey.Error{Kind: bailey.NotFound, Message: "the witness was given no key of this log",
	Hint: "start it with --key KEY, as bailey audit key prints it"}

// Cosign verifies a request ([audit.Request]) and returns the signature line of the witness. Its errors have a hint.
func (w *Witness) Cosign(ctx context.Context, request []byte) ([]byte, error) {
	line, err := w.cosignRequest(ctx, request)
	if err != nil && bailey.HintOf(err) == "" {
		err = bailey.Conflict.Wrap(err, "not cosigned", hintFor(err))
	}
	return line, err
}

func (w *Witness) cosignRequest(ctx context.Context, request []byte) (line []byte, err error) {
	var said audit.Checkpoint
	r, err := audit.ParseRequest(request)
	if err == nil {
		said, err = audit.ReadCheckpoint(r.Checkpoint)
	}
	if err != nil {
		return nil, bailey.Invalid.New(err.Error(), "create one with bailey audit checkpoint --since N")
	}
	if !slices.ContainsFunc(w.trust.Keys, func(k audit.Key) bool { return k.Name() == said.Origin }) {
		return nil, errUnknown
	}
	err = w.store.Replace(ctx, said.Origin, func(last audit.Checkpoint) (audit.Checkpoint, error) {
		line, err = w.cosignAfter(last, said, r)
		return said, err
	})
	if err != nil {
		return nil, err
	}
	return line, nil
}

// cosignAfter cosigns the checkpoint of a request if it extends last.
func (w *Witness) cosignAfter(last, said audit.Checkpoint, r audit.Request) ([]byte, error) {
	if r.Old > said.Size {
		return nil, bailey.Invalid.New("the request begins after its own checkpoint",
			"give --since the size that the witness saw last")
	}
	// before the size, which strangers must not learn
	if _, err := w.trust.Open(r.Checkpoint); err != nil {
		return nil, err
	}
	if r.Old != last.Size {
		return nil, StaleError{last.Size}
	}
	if err := said.Extends(last, r.Proof); err != nil {
		return nil, bailey.Conflict.Wrap(err, "the checkpoint is not cosigned: it does not extend the last one seen",
			"the log may have been rewritten: keep both checkpoints and examine the log")
	}
	signed, err := note.Sign(&note.Note{Text: said.Text()}, w.by)
	return bytes.TrimPrefix(signed, []byte(said.Text()+"\n")), err
}

// hintFor returns the remedy for a refusal that has none.
func hintFor(err error) string {
	var s StaleError
	var bad *audit.Bad
	switch {
	case errors.As(err, &s):
		return fmt.Sprintf("create one that does: bailey audit checkpoint --since %d", s.Size)
	case errors.As(err, &bad) && bad.Reason == audit.Unsigned:
		return newKey
	}
	return "keep the refused request, and examine the log"
}

// newKey is the hint if the witness does not know the signing key.
const newKey = "if the log changed its key, its ledger announces the new one and bailey audit key prints it: check why it changed, then start the witness with both keys, --key twice"

const (
	addPath  = "/add-checkpoint"
	sizeType = "text/x.tlog.size"
)

// patience limits a request to a witness, on both sides.
const patience = 20 * time.Second

// Handler answers POST /add-checkpoint.
func (w *Witness) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+addPath, func(out http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(out, r.Body, audit.MaxRequest))
		if err != nil {
			http.Error(out, "the request is incomplete or too long", http.StatusRequestEntityTooLarge)
			return
		}
		line, err := w.Cosign(r.Context(), text)
		if err != nil {
			writeRefusal(out, err)
			return
		}
		out.Header().Set("Content-Type", "text/plain; charset=utf-8")
		out.Write(line)
	})
	return mux
}

// writeRefusal writes the error status of the specification: for example 409 with the last size, or 422 if the proof is
// invalid.
func writeRefusal(out http.ResponseWriter, err error) {
	var s StaleError
	var bad *audit.Bad
	code := http.StatusInternalServerError
	switch {
	case errors.As(err, &s):
		out.Header().Set("Content-Type", sizeType)
		out.WriteHeader(http.StatusConflict)
		fmt.Fprintf(out, "%d\n", s.Size)
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

// Serve answers on l until ctx ends, with TLS if cert and key name the files of a certificate and its key.
func (w *Witness) Serve(ctx context.Context, l net.Listener, cert, key string) error {
	// a witness requires no token, so all connections remain unauthenticated
	l = strangers.New(strangers.Usual).Listener(l, nil)
	server := &http.Server{Handler: w.Handler(), ReadTimeout: patience, WriteTimeout: patience,
		IdleTimeout: patience, MaxHeaderBytes: 16 << 10}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	var err error
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

// cosigner makes cosignatures (c2sp.org/tlog-cosignature). The private key may be anywhere, because it is asked for each
// signature.
type cosigner struct {
	audit.Key
	private crypto.Signer
	now     func() time.Time
}

// NewCosigner returns the signer of a witness. key is its public key, and private the Ed25519 key that belongs to it
// and signs nothing else. now gives the time in the cosignatures.
func NewCosigner(key audit.Key, private crypto.Signer, now func() time.Time) note.Signer {
	return cosigner{key, private, now}
}

// Sign returns the time and the signature.
func (c cosigner) Sign(text []byte) ([]byte, error) {
	when := c.now()
	if when.Unix() < 0 || when.UTC().Year() > 9999 {
		return nil, errors.New("the witness's clock is before 1970 or after 9999")
	}
	sig, err := c.private.Sign(nil, append(fmt.Appendf(nil, "cosignature/v1\ntime %d\n", when.Unix()), text...), crypto.Hash(0))
	return append(binary.BigEndian.AppendUint64(nil, uint64(when.Unix())), sig...), err
}
