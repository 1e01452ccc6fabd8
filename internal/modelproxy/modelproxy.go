// Package modelproxy is the front end for clients of models. It stands between an agent and the provider of its model,
// speaks the provider's own protocol on both sides, and makes each request as the call model.request through the gate.
//
// # One request
//
// [Proxy.ServeHTTP] identifies the client, recognises the endpoint, reads the body (at most [MaxBody] bytes), and
// redacts every text in it with the token map of the session. Then it makes the call. The policy decides about the
// provider, the model and the sizes; the [Runner] of that call sends the request, with the key that the agent does not
// have, and streams the answer to the client, with the tokens restored that the client may have back. The receipt
// records the model, its tokens and its tools, and no text.
//
// # Failures
//
// The proxy never repeats a request, follows no redirect, and forwards nothing that it cannot read. Each refusal is an
// error in the provider's own shape, which names the cause and the cure. If the client leaves, the request to the
// provider ends; if the provider stops in the middle, the client gets an error, not an answer that seems complete. Data
// is passed on as it arrives: a client that reads slowly slows the provider down.
package modelproxy

import (
	"cmp"
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"bailey"
	"bailey/internal/modelwire"
	"bailey/internal/redact"
)

// Capability is the call that each request is.
const Capability bailey.CapabilityID = "model.request"

// Door is the name of this front end in receipts.
const Door = "model"

// Limits of a request and of an answer.
const (
	MaxBody    = 32 << 20  // bytes of a request, before and after decoding
	maxReply   = 64 << 20  // bytes of an answer that does not come in parts
	maxBodies  = 256 << 20 // bytes of all requests in progress, as sent or as decoded
	maxOwn     = 96 << 20  // of them, those of one session
	maxHead    = 256 << 10
	maxCache   = 32 << 20 // bytes of the texts of a session whose redacted form is remembered
	maxModel   = 200      // bytes of the name of a model in a call
	maxNames   = 64       // names of tools in a receipt
	maxNameLen = 128
	maxOpaque  = 32 // media types in a call
)

// Front describes the listener of a connection.
type Front struct {
	// Upstream is the host:port to which a client in the agent jail connects, as the egress proxy granted it. It must be
	// an address of the provider as [Config] knows it. If it is "", the client connects to the proxy itself and presents a
	// token of Bailey in place of a key.
	Upstream string `json:"upstream,omitempty"`
	Plain    bool   `json:"plain,omitempty"` // the upstream has no TLS
	Session  string `json:"-"`               // bearer of the session, which the connection brings with it; "": the request's
	Dir      string `json:"-"`               // directory of the listener
}

// Provider says where requests go, and with which key.
type Provider struct {
	Name    string // anthropic, openai or gemini
	Base    string // scheme://host[:port]
	KeyFile string
	Lease   string   // the broker's name for the key
	Hosts   []string // each a host:port that a client in the agent jail may use as well, by TLS and with its own key
}

// Config holds the dependencies. Fields without another comment are required.
type Config struct {
	// Enter begins or continues the session that a bearer or a token of an agent stands for. known is the session that
	// it
	// began before for the same client, or ""; a nil leave means that this session simply continues.
	Enter func(ctx context.Context, token string, known bailey.SessionID, f Front) (from bailey.Call,
		leave func(), err error)
	Do    func(context.Context, bailey.Call) bailey.Result
	Table func(bailey.SessionID) *redact.Table
	// Provider returns the configured provider of this name.
	Provider func(name string) Provider
	// Prompt passes a new text of the person, redacted, to the hooks of its event. It returns the text that they make
	// of it,
	// or the reason for which the request must not be made.
	Prompt func(ctx context.Context, from bailey.Call, prompt string) (string, error)
	// Render returns the function that passes a text of an answer to the hooks of its event and returns what they make of
	// it, or nil if no hook has that event.
	Render func(ctx context.Context, from bailey.Call) func(text string) string
	// Restores returns the categories of secrets that are restored in file inputs.
	Restores func() []string
	// Prices returns the prices of the settings, which come before those that Bailey has.
	Prices func() []Price
	// Upstream carries requests to providers. It must not follow redirects or repeat requests.
	Upstream http.RoundTripper
	Log      *slog.Logger
	Patience Patience
}

// Patience limits the times of an exchange. Zero fields have the given defaults.
type Patience struct {
	Answer time.Duration // until the provider begins to answer: 10 min
	Silent time.Duration // without a byte of the provider: 5 min
	Body   time.Duration // for the client to send a request: 1 min
	Read   time.Duration // for the client to read a part of an answer: 2 min
}

// Proxy serves clients of models. It is safe for concurrent use.
type Proxy struct {
	Config
	server *http.Server

	mu     sync.Mutex // guards server, caches, held, prompts and own
	caches map[bailey.SessionID]*modelwire.Cache
	held   map[sessionKey]*heldSession
	// prompts has what hooks made of prompts, redacted, by session.
	prompts map[bailey.SessionID]*keptPrompts
	own     map[bailey.SessionID]int64 // bytes of the bodies in progress

	counts counters
	bodies atomic.Int64 // bytes that the bodies in progress may have
}

type counters struct{ open, requests, refused, broken atomic.Int64 }

// Counts says what the proxy has done since it was made.
type Counts struct {
	Open     int64 `json:"open"`     // requests in progress
	Requests int64 `json:"requests"` // made to a provider
	Refused  int64 `json:"refused"`  // by the proxy or by the policy
	Broken   int64 `json:"broken"`   // answers that did not arrive completely
}

// New returns a proxy. It starts nothing.
func New(c Config) (*Proxy, error) {
	if c.Enter == nil || c.Do == nil || c.Table == nil || c.Provider == nil || c.Prompt == nil ||
		c.Render == nil ||
		c.Restores == nil || c.Prices == nil || c.Upstream == nil {
		return nil, bailey.Internal.New("the model proxy is not configured completely", "")
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Patience.Answer = cmp.Or(c.Patience.Answer, 10*time.Minute)
	c.Patience.Silent = cmp.Or(c.Patience.Silent, 5*time.Minute)
	c.Patience.Body = cmp.Or(c.Patience.Body, time.Minute)
	c.Patience.Read = cmp.Or(c.Patience.Read, 2*time.Minute)
	return &Proxy{Config: c, caches: map[bailey.SessionID]*modelwire.Cache{},
		held: map[sessionKey]*heldSession{}, prompts: map[bailey.SessionID]*keptPrompts{},
		own: map[bailey.SessionID]int64{}}, nil
}

// Counts returns what the proxy has done.
func (p *Proxy) Counts() Counts {
	c := &p.counts
	return Counts{c.open.Load(), c.requests.Load(), c.refused.Load(), c.broken.Load()}
}

type frontKey struct{}

// Serve serves HTTP/1.1 on a listener until it is closed. front returns the description of a connection's listener.
func (p *Proxy) Serve(l net.Listener, front func(net.Conn) Front) error {
	server := &http.Server{
		Handler: p, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: maxHead,
		ErrorLog: log.New(discardLog{}, "", 0), // it quotes data of clients
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, frontKey{}, front(c))
		},
	}
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	if err := server.Serve(l); !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type discardLog struct{}

func (discardLog) Write(b []byte) (int, error) { return len(b), nil }

// cacheOf returns the remembered texts of a session.
func (p *Proxy) cacheOf(id bailey.SessionID) *modelwire.Cache {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.caches[id]
	if c == nil {
		c = modelwire.NewCache(maxCache)
		p.caches[id] = c
	}
	return c
}

// ServeHTTP answers one request of a client.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.counts.open.Add(1)
	defer p.counts.open.Add(-1)
	front, _ := r.Context().Value(frontKey{}).(Front)
	x := &exchange{p: p, w: w, front: front, began: time.Now()}
	if err := x.serveRequest(r); err != nil {
		x.writeRefusal(err)
	}
	if x.cut {
		panic(http.ErrAbortHandler) // the client must not take the answer for complete
	}
}

// serveRequest makes the call. If it returns an error, no part of an answer was written.
func (x *exchange) serveRequest(r *http.Request) error {
	e, ok := modelwire.Recognise(r.Method, r.URL.RequestURI())
	x.endpoint = x.dialectFor(e, r)
	switch {
	case r.Header.Get("Upgrade") != "":
		return refuseWith(http.StatusUpgradeRequired, bailey.Denied.New("the model proxy does not speak WebSocket",
			"use HTTP requests with server-sent events; clients do that by themselves after this answer"))
	case !ok:
		return refuseWith(http.StatusNotFound, bailey.Denied.Errorf("docs/model.md lists the endpoints that it knows",
			"the model proxy does not know %s %s, so it was not forwarded", r.Method, clipName(r.URL.Path, maxModel)))
	case e.Opaque:
		return refuseWith(http.StatusForbidden,
			bailey.Denied.New("files for a provider cannot be redacted, so they are not forwarded",
				"put the text into the conversation"))
	}
	from, leave, err := x.p.enterSession(r.Context(), x.takeToken(r), x.front, r)
	if err != nil {
		return refuseWith(http.StatusUnauthorized, err)
	}
	defer leave()
	x.session, x.from = from.Session.ID, from
	defer x.releaseBytes()
	if err := x.readBody(r); err != nil {
		return err
	}
	if err := x.askHooks(r.Context(), from); err != nil {
		return err
	}
	if err := x.prepareUpstream(r); err != nil {
		return err
	}
	from.Capability, from.Input, from.Client = Capability, x.callInput(), r.UserAgent()
	res := x.p.Do(context.WithValue(r.Context(), exchangeKey{}, x), from)
	x.receipt = res.Receipt
	if x.wrote {
		return nil
	}
	if res.Err == nil {
		return bailey.Internal.New("the request had no answer", "repeat it")
	}
	return res.Err
}

// dialectFor corrects the dialect of endpoints that two providers have at the same path.
func (x *exchange) dialectFor(e modelwire.Endpoint, r *http.Request) modelwire.Endpoint {
	shared := e.Operation == modelwire.Models || e.Operation == modelwire.Files
	if e.Dialect == modelwire.Gemini || e.Dialect != "" && !shared {
		return e
	}
	host, _, _ := net.SplitHostPort(x.front.Upstream)
	switch {
	case strings.HasSuffix(host,
		"anthropic.com"), r.Header.Get("Anthropic-Version") != "", r.Header.Get("X-Api-Key") != "":
		e.Dialect = modelwire.Anthropic
	case r.Header.Get("X-Goog-Api-Key") != "", strings.HasSuffix(host, "googleapis.com"):
		e.Dialect = modelwire.Gemini
	default:
		e.Dialect = modelwire.OpenAIChat
	}
	return e
}

// providerOf returns the name of the provider of a dialect.
func providerOf(d modelwire.Dialect) string {
	switch d {
	case modelwire.Anthropic:
		return "anthropic"
	case modelwire.Gemini:
		return "gemini"
	}
	return "openai"
}

// callInput returns the input of the call: what the policy can judge, and no text.
func (x *exchange) callInput() map[string]any {
	in := map[string]any{"provider": x.provider.Name, "host": x.host, "endpoint": string(x.endpoint.Operation),
		"bytes": jsonNumber(len(x.body)), "messages": jsonNumber(x.sum.Messages), "tools": jsonNumber(len(x.sum.Tools)),
		"stream": x.sum.Stream}
	opaque := []any{}
	for _, kind := range x.sum.Opaque {
		if len(opaque) < maxOpaque {
			opaque = append(opaque, clipName(kind, maxNameLen-28))
		}
	}
	if len(opaque) > 0 {
		in["opaque"] = opaque
	}
	if x.sum.Model != "" {
		in["model"] = clipName(x.sum.Model, maxModel)
	}
	return in
}
