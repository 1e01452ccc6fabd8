package modelproxy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/modelwire"
	"bailey/internal/safefile"
)

// keyVariable is the variable in which the broker lends a key.
const keyVariable = "BAILEY_MODEL_KEY"

// Runner makes the calls of a proxy. It runs only requests that a client of the proxy has sent.
type Runner struct{ Proxy func() *Proxy }

// Plan returns the run of the request that ctx carries.
func (r Runner) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil, bailey.Denied.New("only the model proxy makes requests to models",
			"point the agent's client to the proxy: bailey model start")
	}
	if x.refused != nil {
		return nil, x.refused
	}
	text := fmt.Sprintf("bailey model plan 1\nprovider %q\nhost %q\nendpoint %q\nmodel %q\n", x.provider.Name, x.host,
		x.endpoint.Operation, clipName(x.sum.Model, maxModel))
	sum := sha256.Sum256([]byte(text))
	return &run{x: x, cage: bailey.Cage{Kind: "model", Plan: text, PlanLayers: []string{"", "", "", "", ""},
		PlanDigest: hex.EncodeToString(sum[:])}}, nil
}

// EndSession forgets the texts of a session.
func (r Runner) EndSession(_ context.Context, id bailey.SessionID) error {
	p := r.Proxy()
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.caches, id)
	delete(p.prompts, id)
	return nil
}

// run is one planned request.
type run struct {
	bailey.PlainRun
	x    *exchange
	cage bailey.Cage
}

// Cage returns the plan.
func (r *run) Cage() bailey.Cage { return r.cage }

// Close releases nothing.
func (r *run) Close() error { return nil }

// Wants returns the key, if the broker lends it.
func (r *run) Wants() []bailey.Want {
	if r.x.provider.Lease == "" {
		return nil
	}
	return []bailey.Want{{Name: r.x.provider.Lease, Env: keyVariable}}
}

// Start sends the request and passes the answer on to the client.
func (r *run) Start(ctx context.Context, lent bailey.Lent, _ bailey.Streams) (bailey.Exit, error) {
	x := r.x
	if err := x.addKey(lent); err != nil {
		return bailey.Exit{Code: bailey.NeverRan}, err
	}
	x.p.counts.requests.Add(1)
	err := x.carryRequest(ctx)
	exit := bailey.Exit{Model: &x.use}
	if err != nil {
		exit.Code = 1
		x.p.counts.broken.Add(1)
	}
	return exit, err
}

// addKey adds the key of the settings or the broker. Without one, only a client in the agent jail has its own.
func (x *exchange) addKey(lent bailey.Lent) error {
	key := ""
	switch {
	case x.provider.Lease != "":
		for _, v := range lent.Env {
			if name, value, _ := strings.Cut(v, "="); name == keyVariable {
				key = value
			}
		}
	case x.provider.KeyFile != "":
		text, err := readKey(x.provider.KeyFile)
		if err != nil {
			return err
		}
		key = text
	case x.front.Upstream != "":
		return nil
	}
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return bailey.Unavailable.Errorf("name keyFile or lease in settings.yaml, under model, providers; then run bailey init --apply",
			"there is no usable key for %s", x.provider.Name)
	}
	setKey(x.out.Header, x.provider.Name, key)
	return nil
}

// readKey reads a key that no other user can read.
func readKey(name string) (string, error) {
	info, err := os.Lstat(name)
	if err == nil && safefile.Wide(info) {
		return "", bailey.Denied.New("other users can read the key of the model's provider", "run chmod 600 "+name)
	}
	text, err := safefile.Read(name, 64<<10)
	if err == nil && text == nil {
		err = os.ErrNotExist
	}
	if err != nil {
		return "", bailey.Unavailable.Wrap(err, "cannot read the key of the model's provider",
			"name another keyFile in settings.yaml, under model, providers")
	}
	return strings.TrimSpace(string(text)), nil
}

var errSilent = errors.New("the provider sent nothing for too long")

// carryRequest makes the exchange with the provider. The error names what went wrong; if it has a part of the answer already,
// the
// client got that as an event or by a cut connection.
func (x *exchange) carryRequest(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(x.p.Patience.Answer, func() { cancel(errSilent) })
	defer quiet.Stop()
	res, err := x.p.Upstream.RoundTrip(x.out.WithContext(ctx))
	if err != nil {
		return x.reportFailure(ctx, err)
	}
	defer res.Body.Close()
	x.use.Status, x.use.FirstMillis = res.StatusCode, time.Since(x.began).Milliseconds()
	if res.StatusCode == http.StatusSwitchingProtocols || res.StatusCode >= 300 && res.StatusCode < 400 &&
		res.StatusCode != http.StatusNotModified {
		return bailey.ToolFailed.Errorf("correct the url of the provider in settings.yaml, under model, providers",
			"the provider answered %d and refers to another place, which is not followed", res.StatusCode)
	}
	in := &watchedReader{Reader: res.Body, quiet: quiet, silent: x.p.Patience.Silent, ctx: ctx}
	body, err := newDecoder(in, res.Header.Values("Content-Encoding"))
	if err != nil {
		return bailey.ToolFailed.Wrap(err, "cannot read the answer of the provider", "repeat the request")
	}
	if c, ok := body.(io.Closer); ok {
		defer c.Close()
	}
	if x.isStream(res) {
		return x.streamReply(ctx, res, body)
	}
	return x.relayWhole(ctx, res, body)
}

// watchedReader ends the exchange if the provider is silent.
type watchedReader struct {
	io.Reader
	quiet  *time.Timer
	silent time.Duration
	ctx    context.Context
}

func (r *watchedReader) Read(b []byte) (int, error) {
	r.quiet.Reset(r.silent)
	n, err := r.Reader.Read(b)
	if err != nil && err != io.EOF {
		if cause := context.Cause(r.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// isStream reports whether an answer comes in parts. Some providers name no type for events.
func (x *exchange) isStream(res *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case kind == "text/event-stream":
		return true
	case res.StatusCode >= 300 || !x.sum.Stream && !x.endpoint.Streams:
		return false
	}
	return kind != "application/json" || x.endpoint.Array
}

// readSize is the largest part of an answer that is edited and written at once.
const readSize = 32 << 10

// streamReply passes an answer on as it arrives.
func (x *exchange) streamReply(ctx context.Context, res *http.Response, body io.Reader) error {
	edit := x.newReplyEditor(ctx)
	out := modelwire.NewStream(x.endpoint, clientWriter{x, res}, edit)
	_, err := io.CopyBuffer(struct{ io.Writer }{out}, body, make([]byte, readSize))
	if err == nil {
		err = out.Close()
	}
	x.recordUsage(out.Usage(), edit)
	if err == nil && !x.wrote { // an answer without a byte
		err = x.writeHead(res)
	}
	if err != nil {
		return x.reportBroken(ctx, err)
	}
	return nil
}

// clientWriter writes parts of an answer to the client.
type clientWriter struct {
	x   *exchange
	res *http.Response
}

func (c clientWriter) Write(b []byte) (int, error) {
	rc := http.NewResponseController(c.x.w)
	rc.SetWriteDeadline(time.Now().Add(c.x.p.Patience.Read))
	if !c.x.wrote {
		if err := c.x.writeHead(c.res); err != nil {
			return 0, err
		}
	}
	n, err := c.x.w.Write(b)
	if err == nil {
		err = rc.Flush()
	}
	if err != nil {
		return n, clientGone{err}
	}
	return n, nil
}

// clientGone is the error of a client that does not read the answer.
type clientGone struct{ cause error }

func (c clientGone) Error() string { return "the client does not read the answer: " + c.cause.Error() }
func (c clientGone) Unwrap() error { return c.cause }

// relayWhole passes on an answer that does not come in parts. Errors of the provider stay as they are: clients react to
// their words.
func (x *exchange) relayWhole(ctx context.Context, res *http.Response, body io.Reader) error {
	all, err := io.ReadAll(io.LimitReader(body, maxReply+1))
	if err != nil {
		return x.reportFailure(ctx, err)
	}
	if len(all) > maxReply {
		return bailey.ToolFailed.Errorf("ask for less, or for a stream",
			"the answer of the provider has more than %d bytes", maxReply)
	}
	if res.StatusCode < 300 {
		edit := x.newReplyEditor(ctx)
		out, usage, err := modelwire.Restore(x.endpoint, all, edit.Text)
		if err != nil {
			return bailey.ToolFailed.Wrap(err, "cannot read the answer of the provider", "repeat the request")
		}
		all = out
		x.recordUsage(usage, edit)
	}
	http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(x.p.Patience.Read))
	if x.out.Method != http.MethodHead {
		res.Header.Set("Content-Length", fmt.Sprint(len(all)))
	}
	if err := x.writeHead(res); err != nil {
		return err
	}
	if _, err := x.w.Write(all); err != nil {
		return bailey.ToolFailed.Wrap(err, "the client did not read the answer", "")
	}
	if res.StatusCode >= 400 {
		return bailey.ToolFailed.Errorf("see the provider's message at the client", "the provider answered %d",
			res.StatusCode)
	}
	return nil
}

// writeHead writes the status and the header of an answer.
func (x *exchange) writeHead(res *http.Response) error {
	h := x.w.Header()
	for name, values := range res.Header {
		if !slices.Contains(hopHeaders, name) || name == "Content-Length" && !x.isStream(res) {
			h[name] = values
		}
	}
	if _, named := res.Header["Content-Type"]; !named {
		h["Content-Type"] = nil // otherwise the server would guess one
	}
	x.wrote = true
	x.w.WriteHeader(res.StatusCode)
	return nil
}

// recordUsage adds what the answer says of itself.
func (x *exchange) recordUsage(u modelwire.Usage, e *replyEditor) {
	x.use.Model, x.use.StopReason = clipName(u.Model, maxModel), clipName(cmp.Or(u.StopReason, u.Error), maxNameLen)
	x.countUse(u)
	for _, name := range u.ToolNames {
		if name = clipName(name, maxNameLen); len(x.use.Tools) < maxNames && !slices.Contains(x.use.Tools, name) {
			x.use.Tools = append(x.use.Tools, name)
		}
	}
	x.use.Restored, x.use.Misses = e.restored, e.misses
}

// reportFailure returns the error of an exchange without an answer. The text of a transport may quote the request.
func (x *exchange) reportFailure(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errSilent) {
		return cause
	}
	if errors.Is(context.Cause(ctx), errSilent) {
		return bailey.Unavailable.Errorf("repeat the request later", "the provider %s did not answer in time", x.host)
	}
	return bailey.Unavailable.Errorf("see its status page, and settings.yaml, under model and network",
		"the provider %s cannot be reached: %s", x.host, transportFault(err))
}

// reportBroken tells the client that an answer that began is incomplete.
func (x *exchange) reportBroken(ctx context.Context, err error) error {
	var gone clientGone
	cause := context.Cause(ctx)
	switch {
	case errors.As(err, &gone):
		x.cut = true
		return bailey.ToolFailed.Wrap(err, "the answer did not arrive", "")
	case !x.wrote && bailey.KindOf(err) == bailey.Invalid:
		return bailey.ToolFailed.Wrap(err, "cannot read the answer of the provider", "repeat the request")
	case !x.wrote:
		return x.reportFailure(ctx, err)
	}
	message := "the provider stopped in the middle of its answer"
	switch {
	case errors.Is(cause, errSilent):
		message += ": it was silent for too long"
	case cause != nil:
		message = "the answer was ended: " + cause.Error()
	case bailey.KindOf(err) == bailey.Invalid:
		message = "the answer of the provider cannot be read: " + err.Error()
	}
	x.writeLastEvent(message)
	if cause != nil && !errors.Is(cause, errSilent) {
		return cause
	}
	return bailey.ToolFailed.New(message, "repeat the request")
}

// writeLastEvent writes an error into a stream of events. If the format has none, the connection is cut.
func (x *exchange) writeLastEvent(message string) {
	if x.cut = true; x.endpoint.Array {
		return
	}
	http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(time.Second))
	body := modelwire.ErrorBody(x.endpoint.Dialect, http.StatusBadGateway, "", "Bailey: "+message)
	name := ""
	if x.endpoint.Dialect != modelwire.OpenAIChat {
		name = "event: error\n"
	}
	// The present event may be incomplete: an empty line ends it.
	if _, err := fmt.Fprintf(x.w, "\n\n%sdata: %s\n\n", name, body); err == nil {
		http.NewResponseController(x.w).Flush()
	}
}
