package modelproxy

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"bailey"
	"bailey/internal/modelwire"
)

// exchange is one request of a client, and its answer.
type exchange struct {
	p        *Proxy
	w        http.ResponseWriter
	front    Front
	endpoint modelwire.Endpoint
	session  bailey.SessionID
	from     bailey.Call // the client
	provider Provider
	host     string // host:port of the provider
	out      *http.Request
	body     []byte // redacted
	reserved int64  // bytes that count as in progress
	sum      modelwire.Summary
	use      bailey.ModelUse
	began    time.Time
	receipt  bailey.ReceiptID
	refused  error // why the hooks refused the prompt
	wrote    bool  // a part of the answer was written
	cut      bool  // the connection must end, because the answer is incomplete
}

type exchangeKey struct{}

// authHeaders carry keys. In a request to the proxy itself they carry a token of Bailey.
var authHeaders = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Proxy-Authorization", "Cookie"}

// takeToken returns the token that a client presents in place of a key.
func (x *exchange) takeToken(r *http.Request) string {
	if x.front.Upstream != "" {
		return "" // the connection identifies the client; its headers are for the provider
	}
	for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key"} {
		if v := r.Header.Get(name); v != "" {
			return v
		}
	}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(token)
	}
	return r.URL.Query().Get("key")
}

var errBusy = bailey.Unavailable.New("too many large requests are in progress",
	"repeat the request when others have ended")

// reserveBytes limits the memory of all requests in progress, and of those of one session, so that a session cannot stop
// all others.
func (x *exchange) reserveBytes(n int) error {
	x.reserved += int64(n)
	x.p.mu.Lock()
	x.p.own[x.session] += int64(n)
	own := x.p.own[x.session]
	x.p.mu.Unlock()
	if x.p.bodies.Add(int64(n)) > maxBodies || own > maxOwn {
		return errBusy
	}
	return nil
}

// releaseBytes ends what reserveBytes began.
func (x *exchange) releaseBytes() {
	x.p.bodies.Add(-x.reserved)
	x.p.mu.Lock()
	defer x.p.mu.Unlock()
	if x.p.own[x.session] -= x.reserved; x.p.own[x.session] == 0 {
		delete(x.p.own, x.session)
	}
}

// reservingReader counts what a client sends when it has sent it, so that one that sends nothing stops no other.
type reservingReader struct {
	io.ReadCloser
	x *exchange
}

func (r reservingReader) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	if full := r.x.reserveBytes(n); full != nil {
		err = full
	}
	return n, err
}

// readBody reads and redacts the body.
func (x *exchange) readBody(r *http.Request) error {
	http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(x.p.Patience.Body))
	raw, err := io.ReadAll(http.MaxBytesReader(x.w, reservingReader{r.Body, x}, MaxBody))
	switch {
	case errors.Is(err, errBusy):
		return refuseWith(http.StatusServiceUnavailable, errBusy)
	case err != nil:
		return refuseWith(statusOfRead(err), bailey.Invalid.Wrap(err, "cannot read the request",
			"send at most 32 MiB, without a pause"))
	}
	http.NewResponseController(x.w).SetReadDeadline(time.Time{})
	body, err := decodeAll(raw, r.Header.Values("Content-Encoding"), MaxBody)
	if err != nil {
		return refuseWith(statusOfDecode(err), err)
	}
	if err := x.reserveBytes(len(body) - len(raw)); err != nil {
		return refuseWith(http.StatusServiceUnavailable, err)
	}
	x.body, err = x.redactBody(r.Context(), body)
	if err != nil {
		return refuseWith(statusOfDecode(err), err)
	}
	return nil
}

// redactBody redacts every text of a request. If a secret was learned meanwhile, it may also be in a text that was
// passed
// before, so the body is redacted again.
func (x *exchange) redactBody(ctx context.Context, body []byte) (out []byte, err error) {
	table, cache := x.p.Table(x.session), x.p.cacheOf(x.session)
	text := func(_ modelwire.Where, s string) string { return table.Prompt(s) }
	table.ReserveTokens(body)
	const rounds = 4
	for range rounds {
		generation := table.Generation()
		if out, x.sum, err = cache.EditWithin(ctx, x.endpoint, generation, body, text); err != nil ||
			table.Generation() == generation {
			break
		}
	}
	x.use.Hidden, x.use.PromptBytes = x.sum.Edited, len(x.sum.LastPrompt)
	return out, err
}

func statusOfRead(err error) int {
	if errors.As(err, new(*http.MaxBytesError)) {
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusRequestTimeout
}

func statusOfDecode(err error) int {
	switch {
	case errors.Is(err, modelwire.ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, modelwire.ErrUnreadable), errors.Is(err, errEncoding):
		return http.StatusUnsupportedMediaType
	}
	return http.StatusBadRequest
}

// prepareUpstream makes the request for the provider. The key follows when the call runs.
func (x *exchange) prepareUpstream(r *http.Request) error {
	x.provider = x.p.Provider(providerOf(x.endpoint.Dialect))
	base := x.provider.Base
	if x.front.Upstream != "" {
		own, err := x.chooseUpstream()
		if err != nil {
			return err
		}
		base = own
	}
	to, err := url.Parse(base)
	if err != nil || to.Host == "" {
		return bailey.Unavailable.Errorf("name its url in settings.yaml, under model, providers",
			"the provider %s has no address", x.provider.Name)
	}
	x.host = hostPort(to)
	to.Path, to.RawPath, to.RawQuery = r.URL.Path, r.URL.RawPath, x.forwardedQuery(r)
	if table := x.p.Table(x.session); table.Prompt(to.RequestURI()) != to.RequestURI() {
		return bailey.Denied.New("the address of the request contains a secret, which cannot be hidden there",
			"send it in the body, or leave it out")
	}
	x.out = &http.Request{Method: r.Method, URL: to, Host: to.Host, Header: x.forwardedHeader(r), Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1}
	if len(x.body) > 0 || r.Method == http.MethodPost {
		// Without GetBody no transport can send the body twice.
		x.out.Body, x.out.ContentLength = io.NopCloser(bytes.NewReader(x.body)), int64(len(x.body))
	}
	return nil
}

// chooseUpstream returns the base for a client in the agent jail, which connects to an address of its own. Only addresses
// that the settings or Bailey name for the provider are used, so that a connection cannot lead requests elsewhere.
func (x *exchange) chooseUpstream() (string, error) {
	scheme := "https"
	if x.front.Plain {
		scheme = "http"
	}
	host := strings.ToLower(x.front.Upstream)
	configured, err := url.Parse(x.provider.Base)
	switch {
	case err == nil && configured.Scheme == scheme && hostPort(configured) == host:
	case !x.front.Plain && slices.Contains(x.provider.Hosts, host):
		x.provider.KeyFile, x.provider.Lease = "", "" // the key is for another host
	default:
		return "", refuseWith(http.StatusForbidden, bailey.Denied.Errorf(
			"name its url in settings.yaml, under model, providers, if the provider is there; then run bailey init --apply",
			"%s://%s is no address of the provider %s, so the request was not forwarded", scheme,
			clipName(host, maxModel), x.provider.Name))
	}
	return scheme + "://" + host, nil
}

// hostPort returns the host and the port of a URL.
func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return strings.ToLower(u.Host)
	}
	return strings.ToLower(u.Host) + ":" + map[string]string{"http": "80"}[u.Scheme] + map[string]string{"https": "443"}[u.Scheme]
}

// forwardedQuery returns the query without a token of Bailey.
func (x *exchange) forwardedQuery(r *http.Request) string {
	if x.front.Upstream != "" {
		return r.URL.RawQuery
	}
	pairs := slices.DeleteFunc(strings.Split(r.URL.RawQuery, "&"), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(name)
		return err != nil || plain == "key"
	})
	return strings.Join(pairs, "&")
}

// hopHeaders belong to one connection (RFC 9110, section 7.6.1), or describe bytes that the proxy writes anew.
var hopHeaders = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding",
	"Upgrade",
	"Content-Length", "Content-Encoding", "Accept-Encoding", "Expect", "Host", "Proxy-Authenticate"}

// forwardedHeader returns the header for the provider. Only the keys of a client in the agent jail pass; secrets in any
// other header are hidden.
func (x *exchange) forwardedHeader(r *http.Request) http.Header {
	h := r.Header.Clone()
	for _, name := range h.Values("Connection") {
		for one := range strings.SplitSeq(name, ",") {
			h.Del(strings.TrimSpace(one))
		}
	}
	for _, name := range hopHeaders {
		h.Del(name)
	}
	table := x.p.Table(x.session)
	for name, values := range h {
		if slices.Contains(authHeaders, name) {
			continue
		}
		for i, v := range values {
			values[i] = table.Prompt(v)
		}
	}
	if x.front.Upstream == "" || x.provider.KeyFile != "" || x.provider.Lease != "" {
		for _, name := range authHeaders {
			h.Del(name)
		}
	}
	h.Set("Accept-Encoding", "gzip, deflate, br, zstd")
	return h
}

// setKey puts the provider's key into its header.
func setKey(h http.Header, provider, key string) {
	switch {
	case provider == "gemini":
		h.Set("X-Goog-Api-Key", key)
	case provider == "anthropic" && !strings.HasPrefix(key, "sk-ant-oat"):
		h.Set("X-Api-Key", key)
	default: // an OAuth token of Anthropic is a bearer, too
		h.Set("Authorization", "Bearer "+key)
	}
}

var errEncoding = errors.New("the encoding of the body is not known")

// newDecoder returns a reader of the decoded body. It supports one encoding at a time.
func newDecoder(r io.Reader, encodings []string) (io.Reader, error) {
	name := strings.ToLower(strings.TrimSpace(strings.Join(encodings, ",")))
	switch name {
	case "", "identity":
		return r, nil
	case "gzip", "x-gzip":
		return gzip.NewReader(r)
	case "br":
		return brotli.NewReader(r), nil
	case "zstd":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxBody*2),
			zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	case "deflate": // zlib by RFC 9110, raw by some senders
		buffered := bufio.NewReader(r)
		if head, err := buffered.Peek(2); err == nil && head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
			return zlib.NewReader(buffered)
		}
		return flate.NewReader(buffered), nil
	}
	return nil, bailey.Invalid.Wrapf(errEncoding, "use gzip, br, zstd or deflate, or none",
		"cannot read Content-Encoding %s", strconv.Quote(clipName(name, 64)))
}

// decodeAll decodes a whole body of at most most bytes.
func decodeAll(raw []byte, encodings []string, most int64) ([]byte, error) {
	r, err := newDecoder(bytes.NewReader(raw), encodings)
	if err != nil {
		return nil, encodingError(err)
	}
	body, err := io.ReadAll(io.LimitReader(r, most+1))
	if c, ok := r.(io.Closer); ok {
		c.Close()
	}
	switch {
	case err != nil:
		return nil, encodingError(err)
	case int64(len(body)) > most:
		return nil, bailey.Invalid.Wrapf(modelwire.ErrTooLarge, "send less",
			"the decoded body has more than %d bytes", most)
	}
	return body, nil
}

func encodingError(err error) error {
	if errors.Is(err, errEncoding) {
		return err
	}
	return bailey.Invalid.Wrap(modelwire.ErrUnreadable, "the body is not in its Content-Encoding: "+err.Error(),
		"send it without an encoding")
}

// jsonNumber returns a number as decoded JSON has it.
func jsonNumber(n int) json.Number { return json.Number(strconv.Itoa(n)) }

// clipName limits a name of a stranger.
func clipName(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}
