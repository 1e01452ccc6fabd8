package direct

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/cli"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/strangers"
	"bailey/internal/terminal"
)

// The HTTP form of c2sp.org/tlog-witness: POST /add-checkpoint.

const (
	addPath  = "/add-checkpoint"
	sizeType = "text/x.tlog.size"
)

// witnessPatience limits a request to a witness, on both sides.
const witnessPatience = 20 * time.Second

// handler returns the HTTP handler of the witness.
func (w *witness) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+addPath, func(out http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(out, r.Body, audit.MaxRequest))
		if err != nil {
			http.Error(out, "the request is not whole, or too long", http.StatusRequestEntityTooLarge)
			return
		}
		lines, err := w.add(r.Context(), text)
		if err != nil {
			refuse(out, err)
			return
		}
		out.Header().Set("Content-Type", "text/plain; charset=utf-8")
		out.Write(lines)
	})
	return mux
}

// newKey is the hint if the witness does not know the signing key.
const newKey = "a log that changed its key announces the new one in its ledger, and bailey audit key prints it: look at what became of the log, and start the witness with that --key beside the one before"

// refuse writes the error status of the specification: for example 409 with the last size, or 422 if the proof is
// invalid.
func refuse(out http.ResponseWriter, err error) {
	var s stale
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
		return &bailey.Error{Kind: bailey.Unavailable, Message: "the witness cannot listen on " + terminal.Shown(addr), Err: err, Hint: "give --listen another address"}
	}
	// a witness requires no token, so all connections remain unauthenticated
	l = strangers.New(strangers.Usual).Listener(l, nil)
	server := &http.Server{Handler: w.handler(), ReadTimeout: witnessPatience, WriteTimeout: witnessPatience, IdleTimeout: witnessPatience, MaxHeaderBytes: 16 << 10}
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

// cosigned has a witness cosign the newest checkpoint, and the gateway keep it. The witness reports the last size that
// it saw.
func cosigned(ctx context.Context, c *localapi.Client, at string, witnesses []audit.Key, r *apitype.CheckpointReply) error {
	target, err := witnessURL(at)
	if err != nil {
		return err
	}
	var since uint64
	for range 3 { // another request for the same log may intervene
		var asked apitype.CheckpointReply
		if err := c.Look(ctx, localapi.Query{Verb: "request", Args: map[string]any{"since": since}}, &asked); err != nil {
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
		return c.Look(ctx, localapi.Query{Verb: "cosign", Args: map[string]any{"signed": string(signed)}}, r)
	}
	return &bailey.Error{Kind: bailey.Unavailable, Message: "the witness at " + terminal.Shown(at) + " says each time that it saw another size", Hint: "ask again; another may ask it for the same log"}
}

// witnessURL returns the URL for checkpoints. It must be https, or http on this machine.
func witnessURL(at string) (string, error) {
	u, err := url.Parse(at)
	if err == nil && u.Host != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http" && cli.CheckLoopback(net.JoinHostPort(u.Hostname(), "1")) == nil) {
		return strings.TrimSuffix(u.String(), "/") + addPath, nil
	}
	return "", &bailey.Error{Kind: bailey.Invalid, Message: terminal.Shown(at) + " is no URL of a witness", Err: err, Hint: "https://…, or http:// of a loopback address"}
}

// askWitness returns the signature lines of the witness, or nil and the size that it saw last.
func askWitness(ctx context.Context, target string, request []byte) (lines []byte, size uint64, err error) {
	unreachable := func(what string, err error) error {
		return &bailey.Error{Kind: bailey.Unavailable, Message: "the witness at " + terminal.Shown(target) + " " + terminal.Shown(what), Err: err, Hint: "the checkpoint is signed and kept without it; ask again later"}
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
		return nil, 0, &bailey.Error{Kind: bailey.Unavailable, Message: terminal.Shown(fmt.Sprintf("the witness at %s trusts no key that signed this checkpoint: %.600s", target, bytes.TrimSpace(body))), Hint: newKey}
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
		return nil, &bailey.Error{Kind: bailey.Denied, Message: "what the witness answered is no cosignature of one that is trusted", Err: err,
			Hint: "compare --witness-key with what bailey audit witness --show prints there; the checkpoint is kept without it"}
	}
	return added, nil
}
